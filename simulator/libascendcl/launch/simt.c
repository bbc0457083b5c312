/* Launches over a grid of blocks of threads. The registered function is called once, with the shape. */
#include "launch.h"

static bool product(dim3 size, uint32_t *blocks) {
    uint64_t count = (uint64_t)size.x * size.y;
    *blocks = (uint32_t)(count * size.z);
    return count <= UINT32_MAX && count * size.z <= UINT32_MAX;
}

static aclError shape_of(dim3 grid, dim3 block, size_t dynamic_bytes, shape_t *shape) {
    *shape = (shape_t){
        .grid = {grid.x, grid.y, grid.z}, .block = {block.x, block.y, block.z}, .dynamic_bytes = dynamic_bytes};
    return product(grid, &shape->num_blocks) ? ACL_SUCCESS : error_set(RT_PARAM_INVALID, "gridDim");
}

aclError do_aclrtLaunchSIMTKernelWithArgsArray(void *func, dim3 gridDim, dim3 blockDim, size_t dynUbufSize,
                                               aclrtStream stream, aclrtLaunchKernelCfg *cfg, void **args) {
    shape_t shape;
    aclError rc = shape_of(gridDim, blockDim, dynUbufSize, &shape);
    return rc == ACL_SUCCESS ? launch_with_array(func, &shape, stream, cfg, args) : rc;
}

aclError do_aclrtLaunchSIMTKernelWithHostArgs(void *func, dim3 gridDim, dim3 blockDim, size_t dynUbufSize,
                                              aclrtStream stream, aclrtLaunchKernelCfg *cfg, void *hostArgs,
                                              size_t argsSize, aclrtPlaceHolderInfo *placeHolderArray,
                                              size_t placeHolderNum) {
    shape_t shape;
    host_args_t given = {hostArgs, argsSize, placeHolderArray, placeHolderNum};
    aclError rc = shape_of(gridDim, blockDim, dynUbufSize, &shape);
    return rc == ACL_SUCCESS ? launch_with_host_args(func, &shape, stream, cfg, &given) : rc;
}
