// The socket, the shared file, signals: see connection.h.
#include "connection.h"

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fcntl.h>
#include <mutex>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <ucontext.h>
#include <unistd.h>
#include <vector>

extern char __executable_start;

namespace gpulab {
namespace {

struct Header {
    uint32_t name_size, body_size;
    uint64_t site;
};
struct AnswerHeader {
    int32_t error;
    uint32_t is_sticky, generation, output_size, body_size;
};

int channel = -1, memory = -1;
pid_t owner = 0;
std::recursive_mutex busy;
cudaError_t sticky = cudaSuccess;
thread_local cudaError_t last = cudaSuccess;
char signal_stack[1 << 16];
uint32_t generation = 0;  // of the memory that unfinished work uses

struct Range {
    uint64_t start, size;
};
// Constructors of the program may come before those of this file.
std::vector<Range> &in_use()
{
    static auto *found = new std::vector<Range>;
    return *found;
}

// Protect the memory that unfinished work uses, and no other. See devices/programs/shared_memory.py.
void protect_memory()
{
    for (Range each : in_use())
        mprotect((void *)each.start, each.size, PROT_READ | PROT_WRITE);
    in_use().clear();
    Answer answer = exchange("unfinished", "", &__executable_start);
    for (size_t i = 0; i + 3 <= answer.words(); i += 3) {
        in_use().push_back({answer.word(i), answer.word(i + 1)});
        mprotect((void *)answer.word(i), answer.word(i + 1), answer.word(i + 2) ? PROT_READ : PROT_NONE);
    }
}

bool is_in_use(uint64_t address)
{
    for (Range each : in_use())
        if (each.start <= address && address - each.start < each.size)
            return true;
    return false;
}

[[noreturn]] void lost()
{
    _exit(125);  // gpulab has ended, and said why
}

void send_all(const void *data, size_t size)
{
    for (const char *at = (const char *)data; size > 0;) {
        ssize_t sent = send(channel, at, size, MSG_NOSIGNAL);
        if (sent <= 0)
            lost();
        at += sent;
        size -= (size_t)sent;
    }
}

void receive_all(void *data, size_t size)
{
    for (char *at = (char *)data; size > 0;) {
        ssize_t got = recv(channel, at, size, MSG_WAITALL);
        if (got <= 0)
            lost();
        at += got;
        size -= (size_t)got;
    }
}

// The address behind an instruction's first byte: sites are return addresses, behind the call.
void *behind_instruction(void *context)
{
    auto &machine = ((ucontext_t *)context)->uc_mcontext;
#if defined(__x86_64__)
    return (void *)(machine.gregs[REG_RIP] + 1);
#else
    return (void *)(machine.pc + 1);
#endif
}

// Whether an invalid access was a write; a read where the machine does not say.
uint64_t is_write(void *context)
{
#if defined(__x86_64__)
    return ((ucontext_t *)context)->uc_mcontext.gregs[REG_ERR] >> 1 & 1;
#else
    return 0 * (uint64_t)context;
#endif
}

// Report an access to memory that unfinished work uses, then allow it.
void allow_early(uint64_t address, void *context)
{
    Arguments arguments;
    arguments.add(address);
    arguments.add(is_write(context));
    Answer page = exchange("early", arguments.packed, behind_instruction(context));
    mprotect((void *)page.word(0), page.word(1), PROT_READ | PROT_WRITE);
}

// Report the address of an invalid access, then die of the signal as without this handler.
void on_fault(int number, siginfo_t *info, void *context)
{
    uint64_t address = (uint64_t)info->si_addr;
    if (getpid() == owner && number == SIGSEGV && is_in_use(address)) {
        int kept = errno;
        allow_early(address, context);
        errno = kept;
        return;
    }
    signal(number, SIG_DFL);
    if (getpid() == owner && busy.try_lock()) {
        exchange("fault", std::string((const char *)&address, 8), behind_instruction(context));
        busy.unlock();
    }
    raise(number);
}

void handle_faults()
{
    stack_t stack = {};
    stack.ss_sp = signal_stack;
    stack.ss_size = sizeof signal_stack;
    sigaltstack(&stack, nullptr);
    struct sigaction action = {};
    action.sa_sigaction = on_fault;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
    sigaction(SIGSEGV, &action, nullptr);
    sigaction(SIGBUS, &action, nullptr);
}

__attribute__((constructor(101))) void connect()
{
    const char *files = getenv("GPULAB_PROGRAM");
    if (!files || sscanf(files, "%d,%d", &channel, &memory) != 2) {
        fprintf(stderr, "gpulab: this program was built for `gpulab run`; it cannot run alone\n");
        _exit(125);
    }
    unsetenv("GPULAB_PROGRAM");
    fcntl(channel, F_SETFD, FD_CLOEXEC);
    fcntl(memory, F_SETFD, FD_CLOEXEC);
    owner = getpid();
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    handle_faults();
}

}  // namespace

Answer exchange(const char *name, const std::string &arguments, void *site)
{
    // stand-in and calling function keep frame pointers, so that the call in the program is found
    void *caller = site ? site : __builtin_return_address(1);
    if (getpid() != owner)  // after fork(), as on a GPU
        return {failed(cudaErrorInitializationError), ""};
    std::lock_guard<std::recursive_mutex> lock(busy);
    Header header = {(uint32_t)strlen(name), (uint32_t)arguments.size(),
                     (uint64_t)((char *)caller - &__executable_start)};
    std::string message((const char *)&header, sizeof header);
    message += name;
    message += arguments;
    send_all(message.data(), message.size());
    AnswerHeader found;
    receive_all(&found, sizeof found);
    std::string output(found.output_size, 0);
    Answer answer = {(cudaError_t)found.error, std::string(found.body_size, 0)};
    receive_all(&output[0], output.size());
    receive_all(&answer.body[0], answer.body.size());
    if (!output.empty())
        fwrite(output.data(), 1, output.size(), stdout);
    if (found.is_sticky)
        sticky = answer.error;
    failed(answer.error);
    if (found.generation != generation) {
        generation = found.generation;
        protect_memory();
    }
    return answer;
}

cudaError_t failed(cudaError_t error)
{
    if (error != cudaSuccess && error != cudaErrorNotReady)
        last = error;
    return error;
}

cudaError_t last_error(bool clear)
{
    cudaError_t found = sticky != cudaSuccess ? sticky : last;
    if (clear)
        last = cudaSuccess;
    return found;
}

int shared_file() { return memory; }

void map_memory(uint64_t address, uint64_t size, uint64_t offset)
{
    void *at = mmap((void *)address, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, memory, (off_t)offset);
    if (at != (void *)address) {
        perror("gpulab: mapping device memory");
        lost();
    }
}

void unmap_memory(uint64_t address, uint64_t size) { munmap((void *)address, size); }

void missing(const char *name, void *site)
{
    fflush(nullptr);
    Arguments arguments;
    arguments.add(name);
    exchange("missing", arguments.packed, site);
    _exit(125);
}

}  // namespace gpulab

extern "C" {

cudaError_t cudaGetLastError(void) { return gpulab::last_error(true); }
cudaError_t cudaPeekAtLastError(void) { return gpulab::last_error(false); }

void gpulab_missing(const char *name, void *site) { gpulab::missing(name, site); }  // functions that nothing here defines

}  // extern "C"
