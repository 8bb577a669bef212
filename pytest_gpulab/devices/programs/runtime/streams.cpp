// Streams, events and host callbacks. Every call has ended when it returns; streams only order the estimated times.
#include "graphs.h"

using namespace gpulab;

extern "C" {

cudaError_t cudaStreamCreate(cudaStream_t *stream) { return ask(__func__).into(stream); }
cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned) { return ask("cudaStreamCreate").into(stream); }
cudaError_t cudaStreamCreateWithPriority(cudaStream_t *stream, unsigned, int)
{
    return ask("cudaStreamCreate").into(stream);
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) { return ask(__func__, stream).error; }
cudaError_t cudaStreamSynchronize(cudaStream_t stream) { return ask(__func__, stream).error; }
cudaError_t cudaStreamQuery(cudaStream_t stream) { return ask(__func__, stream).error; }
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned)
{
    return ask(__func__, stream, event).error;
}
cudaError_t cudaStreamGetPriority(cudaStream_t, int *priority) { return *priority = 0, cudaSuccess; }
cudaError_t cudaStreamGetFlags(cudaStream_t, unsigned *flags) { return *flags = 0, cudaSuccess; }
cudaError_t cudaStreamGetId(cudaStream_t stream, unsigned long long *id)
{
    return *id = (unsigned long long)stream, cudaSuccess;
}

cudaError_t cudaEventCreate(cudaEvent_t *event) { return ask(__func__).into(event); }
cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned) { return ask("cudaEventCreate").into(event); }
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) { return ask(__func__, event, stream).error; }
cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned)
{
    return ask("cudaEventRecord", event, stream).error;
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) { return ask(__func__, event).error; }
cudaError_t cudaEventQuery(cudaEvent_t event) { return ask(__func__, event).error; }
cudaError_t cudaEventDestroy(cudaEvent_t event) { return ask(__func__, event).error; }
cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t start, cudaEvent_t end)
{
    return ask("cudaEventElapsedTime", start, end).into(ms);
}

cudaError_t cudaLaunchHostFunc(cudaStream_t, cudaHostFn_t function, void *data)
{
    if (captured([=] { return function(data), cudaSuccess; }))
        return cudaSuccess;
    cudaError_t error = ask(__func__).error;
    if (!error)
        function(data);
    return error;
}

cudaError_t cudaStreamAddCallback(cudaStream_t stream, cudaStreamCallback_t function, void *data, unsigned)
{
    cudaError_t error = ask(__func__).error;
    if (!error)
        function(stream, cudaSuccess, data);
    return error;
}

}  // extern "C"
