// Programs that attack the grader or the machine, chosen by the first argument. Each prints what it has achieved.
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dirent.h>
#include <fcntl.h>
#include <string>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <netinet/in.h>
#include <arpa/inet.h>
#include <system_error>
#include <thread>
#include <unistd.h>

__global__ void count(int *to) { *to += 1; }

static const char *how;

static bool is(const char *name) { return strcmp(how, name) == 0; }

static void say(const char *what, long result)
{
    printf("%s: %s\n", what, result < 0 ? strerror(errno) : "done");
}

// A descriptor that this process inherited: the socket to the simulated GPU, or its memory.
static int inherited(bool is_socket)
{
    for (int fd = 3; fd < 300; fd++) {
        struct stat facts;
        if (fstat(fd, &facts) == 0 && S_ISSOCK(facts.st_mode) == is_socket)
            return fd;
    }
    return -1;
}

static std::string request(const std::string &name, const std::string &arguments)
{
    uint32_t sizes[2] = {(uint32_t)name.size(), (uint32_t)arguments.size()};
    uint64_t site = 0;
    return std::string((char *)sizes, 8) + std::string((char *)&site, 8) + name + arguments;
}

static void send_raw(const std::string &bytes) { send(inherited(true), bytes.data(), bytes.size(), 0); }

static void words(std::string &to, std::initializer_list<uint64_t> values)
{
    for (uint64_t value : values)
        to.append((const char *)&value, 8);
}

static void launch_raw(uint64_t number, uint64_t block, const std::string &parameters)
{
    std::string arguments;
    words(arguments, {number, 1, 1, 1, block, 1, 1, 0, 0, 0, parameters.size()});
    send_raw(request("launch", arguments + parameters));
    int32_t answer[4] = {};
    recv(inherited(true), answer, sizeof answer, MSG_WAITALL);
    printf("answer %d\n", answer[0]);
}

static void launch()
{
    int *device, host = 0;
    cudaMalloc(&device, sizeof(int));
    cudaMemset(device, 0, sizeof(int));
    count<<<1, 1>>>(device);
    cudaMemcpy(&host, device, sizeof(int), cudaMemcpyDeviceToHost);
    cudaFree(device);
    printf("counted %d\n", host);
}

static void on_processes()
{
    if (is("fork bomb"))
        for (int i = 0; i < 1000; i++)
            if (fork() >= 0)
                printf("forked\n");
    if (is("fork bomb"))
        say("fork", fork());
    if (is("shell"))
        printf("system: %d\n", WEXITSTATUS(system("echo from the shell")));
    if (is("kill")) {
        say("kill the parent", kill(getppid(), SIGKILL));
        say("kill all", kill(-1, SIGKILL));
    }
    if (is("ptrace"))
        say("ptrace", ptrace(PTRACE_ATTACH, getppid(), nullptr, nullptr));
    if (is("threads"))
        try {
            std::thread([] {}).join();
        } catch (const std::system_error &error) {
            printf("thread: %s\n", error.what());
        }
    if (is("stop"))
        raise(SIGSTOP);
    if (is("sleep"))
        sleep(1000);
    if (is("spin"))
        for (volatile long i = 0;; i++)
            ;
}

static void on_memory_and_files(const char *argument)
{
    if (is("memory")) {
        size_t total = 0;
        for (void *block; (block = malloc(64 << 20)); total += 64)
            memset(block, 1, 64 << 20);
        printf("at most 1 GiB: %s\n", total <= 1024 ? "yes" : "no");
    }
    if (is("disk")) {
        std::string mib(1 << 20, 'x');
        long files = 0, bytes = 0;
        for (; files < 1000; files++) {
            int file = open(("file" + std::to_string(files)).c_str(), O_CREAT | O_WRONLY, 0600);
            long written = write(file, mib.data(), mib.size());
            close(file);
            if (written < 0)
                break;
            bytes += written;
        }
        say("write", -1);
        printf("at most 64 MiB: %s\n", bytes <= 64 << 20 ? "yes" : "no");
    }
    if (is("read"))
        for (const char *path : {"/etc/passwd", "/proc/self/environ", "/proc/1/environ", "/root", "/home", argument})
            say(path, open(path, O_RDONLY));
    if (is("write outside"))
        for (const char *path : {"/new", "/usr/lib/new", "/work/program", "input.txt", "/dev/new"})
            say(path, open(path, O_CREAT | O_WRONLY, 0600));
    if (is("list"))
        for (const char *path : {"/", "/work", "/tmp", "/etc", "/dev"})
            if (DIR *folder = opendir(path))
                while (dirent *entry = readdir(folder))
                    if (entry->d_name[0] != '.')
                        printf("%s: %s\n", path, entry->d_name);
    if (is("replace")) {
        say("unlink", unlink("out.txt"));
        symlink("/etc/passwd", "link");
        say("rename", rename("link", "out.txt"));
    }
    if (is("long file"))
        for (std::string mib(1 << 20, 'x');;)
            if (FILE *file = fopen("out.txt", "a")) {
                fwrite(mib.data(), 1, mib.size(), file);
                fclose(file);
            }
    if (is("long output"))
        for (;;)
            puts("0123456789012345678901234567890123456789");
    if (is("ignored long output")) {
        signal(SIGPIPE, SIG_IGN);
        for (;;)
            puts("0123456789012345678901234567890123456789");
    }
}

static void on_network(const char *port)
{
    if (!is("connect"))
        return;
    sockaddr_in to = {};
    to.sin_family = AF_INET;
    to.sin_port = htons((uint16_t)atoi(port));
    to.sin_addr.s_addr = inet_addr("127.0.0.1");
    say("this machine", connect(socket(AF_INET, SOCK_STREAM, 0), (sockaddr *)&to, sizeof to));
    to.sin_addr.s_addr = inet_addr("192.0.2.1");
    say("another machine", connect(socket(AF_INET, SOCK_STREAM, 0), (sockaddr *)&to, sizeof to));
}

static void on_simulated_gpu()
{
    if (is("descriptors"))
        for (int fd = 3; fd < 300; fd++)
            if (fcntl(fd, F_GETFD) >= 0)
                printf("%s\n", fd == inherited(true) ? "socket" : fd == inherited(false) ? "memory" : "another");
    if (is("shrink")) {
        launch();
        say("shrink", ftruncate(inherited(false), 0));
        say("seal", fcntl(inherited(false), F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_GROW));
        launch();
    }
    if (is("grow")) {
        signal(SIGXFSZ, SIG_IGN);
        say("grow", ftruncate(inherited(false), 1ll << 40));
    }
    if (is("punch"))
        say("punch", fallocate(inherited(false), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 1 << 20));
    if (is("unknown call"))
        send_raw(request("gradeMe", ""));
    if (is("garbage"))
        send_raw(std::string(1000, '\xFF'));
    if (is("arguments missing"))
        send_raw(request("cudaMalloc", ""));
    if (is("arguments of another size"))
        send_raw(request("cudaMalloc", std::string(12, '\1')));
    if (is("half a request"))
        send_raw(std::string(5, '\0'));
    if (is("no such kernel"))
        launch_raw(99, 1, "");
    if (is("impossible launch")) {
        launch();
        launch_raw(0, 4096, std::string(8, '\0'));
    }
    if (is("launch without arguments")) {
        launch();
        launch_raw(0, 1, "");
    }
    if (is("closed socket")) {
        close(inherited(true));
        puts("closed");
    }
    if (is("exit code of a signal"))
        _exit(139);
}

int main(int argc, char **argv)
{
    how = argc > 1 ? argv[1] : "";
    const char *argument = argc > 2 ? argv[2] : "";
    setvbuf(stdout, nullptr, _IOLBF, 1 << 12);
    on_processes();
    on_memory_and_files(argument);
    on_network(argument);
    on_simulated_gpu();
    if (is("launch"))
        launch();
    puts("end");
}
