"""Made by `python build_ffi.py --stub` from acl_api.inc; tests compare the two."""

from typing import TypeAlias

from aioacl._base.ffi import CData
from aioacl._handles.event import Event
from aioacl._handles.memory import DeviceBuffer
from aioacl._handles.pinned import PinnedBuffer
from aioacl._handles.stream import Stream
from aioacl.lowlevel._calls import Place

Memory: TypeAlias = CData | DeviceBuffer | PinnedBuffer

class Functions:
    """ACL's functions as methods with the C names of their parameters."""

    def __init__(self, place: Place | None = ...) -> None: ...
    def aclrtGetSocName(self) -> CData:
        """const char * aclrtGetSocName(void), since CANN 8.1."""
    def aclGetCannAttributeList(self, cannAttrList: CData, num: CData) -> None:
        """aclError aclGetCannAttributeList(const aclCannAttr **cannAttrList, size_t *num), since CANN 8.1."""
    def aclGetCannAttribute(self, cannAttr: int, value: CData) -> None:
        """aclError aclGetCannAttribute(aclCannAttr cannAttr, int32_t *value), since CANN 8.1."""
    def aclInit(self, configPath: bytes | CData) -> None:
        """aclError aclInit(const char *configPath), since CANN 8.1."""
    def aclFinalize(self) -> None:
        """aclError aclFinalize(void), since CANN 8.1."""
    def aclFinalizeReference(self, refCount: CData) -> None:
        """aclError aclFinalizeReference(uint64_t *refCount), since CANN 8.5."""
    def aclGetRecentErrMsg(self) -> CData:
        """const char * aclGetRecentErrMsg(void), since CANN 8.1."""
    def aclsysGetCANNVersion(self, name: int, version: CData) -> None:
        """aclError aclsysGetCANNVersion(aclCANNPackageName name, aclCANNPackageVersion *version), since CANN 8.1."""
    def aclsysGetVersionStr(self, pkgName: CData, versionStr: CData) -> None:
        """aclError aclsysGetVersionStr(char *pkgName, char *versionStr), since CANN 8.5."""
    def aclsysGetVersionNum(self, pkgName: CData, versionNum: CData) -> None:
        """aclError aclsysGetVersionNum(char *pkgName, int32_t *versionNum), since CANN 8.5."""
    def aclrtPeekAtLastError(self, level: int) -> int:
        """aclError aclrtPeekAtLastError(aclrtLastErrLevel level), since CANN 8.1."""
    def aclrtGetLastError(self, level: int) -> int:
        """aclError aclrtGetLastError(aclrtLastErrLevel level), since CANN 8.1."""
    def aclrtSetExceptionInfoCallback(self, callback: CData) -> None:
        """aclError aclrtSetExceptionInfoCallback(aclrtExceptionInfoCallback callback), since CANN 8.1."""
    def aclrtExceptionInfoCallbackRegister(self, callback: CData) -> None:
        """aclError aclrtExceptionInfoCallbackRegister(aclrtExceptionInfoCallback callback), since CANN master."""
    def aclrtExceptionInfoCallbackUnregister(self, callback: CData) -> None:
        """aclError aclrtExceptionInfoCallbackUnregister(aclrtExceptionInfoCallback callback), since CANN master."""
    def aclrtGetTaskIdFromExceptionInfo(self, info: CData) -> int:
        """uint32_t aclrtGetTaskIdFromExceptionInfo(const aclrtExceptionInfo *info), since CANN 8.1."""
    def aclrtGetStreamIdFromExceptionInfo(self, info: CData) -> int:
        """uint32_t aclrtGetStreamIdFromExceptionInfo(const aclrtExceptionInfo *info), since CANN 8.1."""
    def aclrtGetThreadIdFromExceptionInfo(self, info: CData) -> int:
        """uint32_t aclrtGetThreadIdFromExceptionInfo(const aclrtExceptionInfo *info), since CANN 8.1."""
    def aclrtGetDeviceIdFromExceptionInfo(self, info: CData) -> int:
        """uint32_t aclrtGetDeviceIdFromExceptionInfo(const aclrtExceptionInfo *info), since CANN 8.1."""
    def aclrtGetErrorCodeFromExceptionInfo(self, info: CData) -> int:
        """uint32_t aclrtGetErrorCodeFromExceptionInfo(const aclrtExceptionInfo *info), since CANN 8.1."""
    def aclrtGetArgsFromExceptionInfo(self, info: CData, devArgsPtr: CData, devArgsLen: CData) -> None:
        """aclError aclrtGetArgsFromExceptionInfo(const aclrtExceptionInfo *info, void **devArgsPtr, uint32_t *devArgsLen), since CANN 9.0."""
    def aclrtGetFuncHandleFromExceptionInfo(self, info: CData, func: CData) -> None:
        """aclError aclrtGetFuncHandleFromExceptionInfo(const aclrtExceptionInfo *info, aclrtFuncHandle *func), since CANN 9.0."""
    def aclrtCreateContext(self, context: CData, deviceId: int) -> None:
        """aclError aclrtCreateContext(aclrtContext *context, int32_t deviceId), since CANN 8.1."""
    def aclrtDestroyContext(self, context: CData) -> None:
        """aclError aclrtDestroyContext(aclrtContext context), since CANN 8.1."""
    def aclrtSetCurrentContext(self, context: CData) -> None:
        """aclError aclrtSetCurrentContext(aclrtContext context), since CANN 8.1."""
    def aclrtGetCurrentContext(self, context: CData) -> None:
        """aclError aclrtGetCurrentContext(aclrtContext *context), since CANN 8.1."""
    def aclrtCtxGetSysParamOpt(self, opt: int, value: CData) -> None:
        """aclError aclrtCtxGetSysParamOpt(aclSysParamOpt opt, int64_t *value), since CANN 8.1."""
    def aclrtCtxSetSysParamOpt(self, opt: int, value: int) -> None:
        """aclError aclrtCtxSetSysParamOpt(aclSysParamOpt opt, int64_t value), since CANN 8.1."""
    def aclrtGetSysParamOpt(self, opt: int, value: CData) -> None:
        """aclError aclrtGetSysParamOpt(aclSysParamOpt opt, int64_t *value), since CANN 8.1."""
    def aclrtSetSysParamOpt(self, opt: int, value: int) -> None:
        """aclError aclrtSetSysParamOpt(aclSysParamOpt opt, int64_t value), since CANN 8.1."""
    def aclrtGetRunMode(self, runMode: CData) -> None:
        """aclError aclrtGetRunMode(aclrtRunMode *runMode), since CANN 8.1."""
    def aclrtGetThreadLastTaskId(self, taskId: CData) -> None:
        """aclError aclrtGetThreadLastTaskId(uint32_t *taskId), since CANN 8.1."""
    def aclrtSetOpWaitTimeout(self, timeout: int) -> None:
        """aclError aclrtSetOpWaitTimeout(uint32_t timeout), since CANN 8.1."""
    def aclrtSetOpExecuteTimeOut(self, timeout: int) -> None:
        """aclError aclrtSetOpExecuteTimeOut(uint32_t timeout), since CANN 8.1."""
    def aclrtSetOpExecuteTimeOutWithMs(self, timeout: int) -> None:
        """aclError aclrtSetOpExecuteTimeOutWithMs(uint32_t timeout), since CANN 8.1."""
    def aclrtSetOpExecuteTimeOutV2(self, timeout: int, actualTimeout: CData) -> None:
        """aclError aclrtSetOpExecuteTimeOutV2(uint64_t timeout, uint64_t *actualTimeout), since CANN 8.5."""
    def aclrtGetOpTimeOutInterval(self, interval: CData) -> None:
        """aclError aclrtGetOpTimeOutInterval(uint64_t *interval), since CANN 8.5."""
    def aclmdlInitDump(self) -> None:
        """aclError aclmdlInitDump(void), since CANN 8.1."""
    def aclmdlSetDump(self, dumpCfgPath: bytes | CData) -> None:
        """aclError aclmdlSetDump(const char *dumpCfgPath), since CANN 8.1."""
    def aclmdlFinalizeDump(self) -> None:
        """aclError aclmdlFinalizeDump(void), since CANN 8.1."""
    def aclrtGetVersion(self, majorVersion: CData, minorVersion: CData, patchVersion: CData) -> None:
        """aclError aclrtGetVersion(int32_t *majorVersion, int32_t *minorVersion, int32_t *patchVersion), since CANN 8.1."""
    def aclInitCallbackRegister(self, type: int, cbFunc: CData, userData: Memory) -> None:
        """aclError aclInitCallbackRegister(aclRegisterCallbackType type, aclInitCallbackFunc cbFunc, void *userData), since CANN 8.5."""
    def aclInitCallbackUnRegister(self, type: int, cbFunc: CData) -> None:
        """aclError aclInitCallbackUnRegister(aclRegisterCallbackType type, aclInitCallbackFunc cbFunc), since CANN 8.5."""
    def aclFinalizeCallbackRegister(self, type: int, cbFunc: CData, userData: Memory) -> None:
        """aclError aclFinalizeCallbackRegister(aclRegisterCallbackType type, aclFinalizeCallbackFunc cbFunc, void *userData), since CANN 8.5."""
    def aclFinalizeCallbackUnRegister(self, type: int, cbFunc: CData) -> None:
        """aclError aclFinalizeCallbackUnRegister(aclRegisterCallbackType type, aclFinalizeCallbackFunc cbFunc), since CANN 8.5."""
    def aclrtGetOpExecuteTimeout(self, timeoutMs: CData) -> None:
        """aclError aclrtGetOpExecuteTimeout(uint32_t *const timeoutMs), since CANN 8.5."""
    def aclrtCheckArchCompatibility(self, socVersion: bytes | CData, canCompatible: CData) -> None:
        """aclError aclrtCheckArchCompatibility(const char *socVersion, int32_t *canCompatible), since CANN 8.5."""
    def aclrtSnapShotProcessLock(self, pid: int, reserve: Memory) -> None:
        """aclError aclrtSnapShotProcessLock(int pid, void *reserve), since CANN 8.5."""
    def aclrtSnapShotProcessUnlock(self, pid: int, reserve: Memory) -> None:
        """aclError aclrtSnapShotProcessUnlock(int pid, void *reserve), since CANN 8.5."""
    def aclrtSnapShotProcessBackup(self, pid: int, args: CData) -> None:
        """aclError aclrtSnapShotProcessBackup(int pid, aclrtSnapShotBackupArgs *args), since CANN 8.5."""
    def aclrtSnapShotProcessRestore(self, pid: int, args: CData) -> None:
        """aclError aclrtSnapShotProcessRestore(int pid, aclrtSnapShotRestoreArgs *args), since CANN 8.5."""
    def aclrtSnapShotCallbackRegister(self, stage: int, callback: CData, args: Memory) -> None:
        """aclError aclrtSnapShotCallbackRegister(aclrtSnapShotStage stage, aclrtSnapShotCallBack callback, void *args), since CANN 9.0."""
    def aclrtSnapShotCallbackUnregister(self, stage: int, callback: CData) -> None:
        """aclError aclrtSnapShotCallbackUnregister(aclrtSnapShotStage stage, aclrtSnapShotCallBack callback), since CANN 9.0."""
    def aclFloat16ToFloat(self, value: int) -> float:
        """float aclFloat16ToFloat(aclFloat16 value), since CANN 8.1."""
    def aclFloatToFloat16(self, value: float) -> int:
        """aclFloat16 aclFloatToFloat16(float value), since CANN 8.1."""
    def aclCreateDataBuffer(self, data: Memory, size: int) -> CData:
        """aclDataBuffer * aclCreateDataBuffer(void *data, size_t size), since CANN 8.1."""
    def aclDestroyDataBuffer(self, dataBuffer: CData) -> None:
        """aclError aclDestroyDataBuffer(const aclDataBuffer *dataBuffer), since CANN 8.1."""
    def aclUpdateDataBuffer(self, dataBuffer: CData, data: Memory, size: int) -> None:
        """aclError aclUpdateDataBuffer(aclDataBuffer *dataBuffer, void *data, size_t size), since CANN 8.1."""
    def aclGetDataBufferAddr(self, dataBuffer: CData) -> CData:
        """void * aclGetDataBufferAddr(const aclDataBuffer *dataBuffer), since CANN 8.1."""
    def aclGetDataBufferSize(self, dataBuffer: CData) -> int:
        """uint32_t aclGetDataBufferSize(const aclDataBuffer *dataBuffer), since CANN 8.1."""
    def aclGetDataBufferSizeV2(self, dataBuffer: CData) -> int:
        """size_t aclGetDataBufferSizeV2(const aclDataBuffer *dataBuffer), since CANN 8.1."""
    def aclDataTypeSize(self, dataType: int) -> int:
        """size_t aclDataTypeSize(aclDataType dataType), since CANN 8.1."""
    def aclCreateTensorDesc(self, dataType: int, numDims: int, dims: CData, format: int) -> CData:
        """aclTensorDesc * aclCreateTensorDesc(aclDataType dataType, int numDims, const int64_t *dims, aclFormat format), since CANN 8.1."""
    def aclDestroyTensorDesc(self, desc: CData) -> None:
        """void aclDestroyTensorDesc(const aclTensorDesc *desc), since CANN 8.1."""
    def aclSetTensorShapeRange(self, desc: CData, dimsCount: int, dimsRange: CData) -> None:
        """aclError aclSetTensorShapeRange(aclTensorDesc *desc, size_t dimsCount, int64_t dimsRange[][2]), since CANN 8.1."""
    def aclSetTensorValueRange(self, desc: CData, valueCount: int, valueRange: CData) -> None:
        """aclError aclSetTensorValueRange(aclTensorDesc *desc, size_t valueCount, int64_t valueRange[][2]), since CANN 8.1."""
    def aclGetTensorDescType(self, desc: CData) -> int:
        """aclDataType aclGetTensorDescType(const aclTensorDesc *desc), since CANN 8.1."""
    def aclGetTensorDescFormat(self, desc: CData) -> int:
        """aclFormat aclGetTensorDescFormat(const aclTensorDesc *desc), since CANN 8.1."""
    def aclGetTensorDescSize(self, desc: CData) -> int:
        """size_t aclGetTensorDescSize(const aclTensorDesc *desc), since CANN 8.1."""
    def aclGetTensorDescElementCount(self, desc: CData) -> int:
        """size_t aclGetTensorDescElementCount(const aclTensorDesc *desc), since CANN 8.1."""
    def aclGetTensorDescNumDims(self, desc: CData) -> int:
        """size_t aclGetTensorDescNumDims(const aclTensorDesc *desc), since CANN 8.1."""
    def aclGetTensorDescDim(self, desc: CData, index: int) -> int:
        """int64_t aclGetTensorDescDim(const aclTensorDesc *desc, size_t index), since CANN 8.1."""
    def aclGetTensorDescDimV2(self, desc: CData, index: int, dimSize: CData) -> None:
        """aclError aclGetTensorDescDimV2(const aclTensorDesc *desc, size_t index, int64_t *dimSize), since CANN 8.1."""
    def aclGetTensorDescDimRange(self, desc: CData, index: int, dimRangeNum: int, dimRange: CData) -> None:
        """aclError aclGetTensorDescDimRange(const aclTensorDesc *desc, size_t index, size_t dimRangeNum, int64_t *dimRange), since CANN 8.1."""
    def aclSetTensorDescName(self, desc: CData, name: bytes | CData) -> None:
        """void aclSetTensorDescName(aclTensorDesc *desc, const char *name), since CANN 8.1."""
    def aclGetTensorDescName(self, desc: CData) -> CData:
        """const char * aclGetTensorDescName(aclTensorDesc *desc), since CANN 8.1."""
    def aclTransTensorDescFormat(self, srcDesc: CData, dstFormat: int, dstDesc: CData) -> None:
        """aclError aclTransTensorDescFormat(const aclTensorDesc *srcDesc, aclFormat dstFormat, aclTensorDesc **dstDesc), since CANN 8.1."""
    def aclSetTensorStorageFormat(self, desc: CData, format: int) -> None:
        """aclError aclSetTensorStorageFormat(aclTensorDesc *desc, aclFormat format), since CANN 8.1."""
    def aclSetTensorStorageShape(self, desc: CData, numDims: int, dims: CData) -> None:
        """aclError aclSetTensorStorageShape(aclTensorDesc *desc, int numDims, const int64_t *dims), since CANN 8.1."""
    def aclSetTensorFormat(self, desc: CData, format: int) -> None:
        """aclError aclSetTensorFormat(aclTensorDesc *desc, aclFormat format), since CANN 8.1."""
    def aclSetTensorShape(self, desc: CData, numDims: int, dims: CData) -> None:
        """aclError aclSetTensorShape(aclTensorDesc *desc, int numDims, const int64_t *dims), since CANN 8.1."""
    def aclSetTensorOriginFormat(self, desc: CData, format: int) -> None:
        """aclError aclSetTensorOriginFormat(aclTensorDesc *desc, aclFormat format), since CANN 8.1."""
    def aclSetTensorOriginShape(self, desc: CData, numDims: int, dims: CData) -> None:
        """aclError aclSetTensorOriginShape(aclTensorDesc *desc, int numDims, const int64_t *dims), since CANN 8.1."""
    def aclGetTensorDescByIndex(self, desc: CData, index: int) -> CData:
        """aclTensorDesc * aclGetTensorDescByIndex(aclTensorDesc *desc, size_t index), since CANN 8.1."""
    def aclGetTensorDescAddress(self, desc: CData) -> CData:
        """void * aclGetTensorDescAddress(const aclTensorDesc *desc), since CANN 8.1."""
    def aclSetTensorDynamicInput(self, desc: CData, dynamicInputName: bytes | CData) -> None:
        """aclError aclSetTensorDynamicInput(aclTensorDesc *desc, const char *dynamicInputName), since CANN 8.1."""
    def aclSetTensorConst(self, desc: CData, dataBuffer: Memory, length: int) -> None:
        """aclError aclSetTensorConst(aclTensorDesc *desc, void *dataBuffer, size_t length), since CANN 8.1."""
    def aclSetTensorPlaceMent(self, desc: CData, memType: int) -> None:
        """aclError aclSetTensorPlaceMent(aclTensorDesc *desc, aclMemType memType), since CANN 8.1."""
    def aclrtGetBufFromChain(self, headBuf: CData, index: int, buf: CData) -> None:
        """aclError aclrtGetBufFromChain(aclrtMbuf headBuf, uint32_t index, aclrtMbuf *buf), since CANN 8.5."""
    def aclrtGetBufChainNum(self, headBuf: CData, num: CData) -> None:
        """aclError aclrtGetBufChainNum(aclrtMbuf headBuf, uint32_t *num), since CANN 8.5."""
    def aclrtAppendBufChain(self, headBuf: CData, buf: CData) -> None:
        """aclError aclrtAppendBufChain(aclrtMbuf headBuf, aclrtMbuf buf), since CANN 8.5."""
    def aclrtCopyBufRef(self, buf: CData, newBuf: CData) -> None:
        """aclError aclrtCopyBufRef(const aclrtMbuf buf, aclrtMbuf *newBuf), since CANN 8.5."""
    def aclrtGetBufUserData(self, buf: CData, dataPtr: Memory, size: int, offset: int) -> None:
        """aclError aclrtGetBufUserData(const aclrtMbuf buf, void *dataPtr, size_t size, size_t offset), since CANN 8.5."""
    def aclrtSetBufUserData(self, buf: CData, dataPtr: bytes | Memory, size: int, offset: int) -> None:
        """aclError aclrtSetBufUserData(aclrtMbuf buf, const void *dataPtr, size_t size, size_t offset), since CANN 8.5."""
    def aclrtGetBufData(self, buf: CData, dataPtr: CData, size: CData) -> None:
        """aclError aclrtGetBufData(const aclrtMbuf buf, void **dataPtr, size_t *size), since CANN 8.5."""
    def aclrtGetBufDataLen(self, buf: CData, len: CData) -> None:
        """aclError aclrtGetBufDataLen(aclrtMbuf buf, size_t *len), since CANN 8.5."""
    def aclrtSetBufDataLen(self, buf: CData, len: int) -> None:
        """aclError aclrtSetBufDataLen(aclrtMbuf buf, size_t len), since CANN 8.5."""
    def aclrtFreeBuf(self, buf: CData) -> None:
        """aclError aclrtFreeBuf(aclrtMbuf buf), since CANN 8.5."""
    def aclrtAllocBuf(self, buf: CData, size: int) -> None:
        """aclError aclrtAllocBuf(aclrtMbuf *buf, size_t size), since CANN 8.5."""
    def aclGetDeviceCapability(self, deviceId: int, deviceInfo: int, value: CData) -> None:
        """aclError aclGetDeviceCapability(uint32_t deviceId, aclDeviceInfo deviceInfo, int64_t *value), since CANN 8.1."""
    def aclrtSetDevice(self, deviceId: int) -> None:
        """aclError aclrtSetDevice(int32_t deviceId), since CANN 8.1."""
    def aclrtResetDevice(self, deviceId: int) -> None:
        """aclError aclrtResetDevice(int32_t deviceId), since CANN 8.1."""
    def aclrtResetDeviceForce(self, deviceId: int) -> None:
        """aclError aclrtResetDeviceForce(int32_t deviceId), since CANN 8.1."""
    def aclrtGetDevice(self, deviceId: CData) -> None:
        """aclError aclrtGetDevice(int32_t *deviceId), since CANN 8.1."""
    def aclrtSynchronizeDevice(self) -> None:
        """aclError aclrtSynchronizeDevice(void), since CANN 8.1."""
    def aclrtSynchronizeDeviceWithTimeout(self, timeout: int) -> None:
        """aclError aclrtSynchronizeDeviceWithTimeout(int32_t timeout), since CANN 8.1."""
    def aclrtSetTsDevice(self, tsId: int) -> None:
        """aclError aclrtSetTsDevice(aclrtTsId tsId), since CANN 8.1."""
    def aclrtGetDeviceUtilizationRate(self, deviceId: int, utilizationInfo: CData) -> None:
        """aclError aclrtGetDeviceUtilizationRate(int32_t deviceId, aclrtUtilizationInfo *utilizationInfo), since CANN 8.1."""
    def aclrtGetDeviceCount(self, count: CData) -> None:
        """aclError aclrtGetDeviceCount(uint32_t *count), since CANN 8.1."""
    def aclrtSetGroup(self, groupId: int) -> None:
        """aclError aclrtSetGroup(int32_t groupId), since CANN 8.1."""
    def aclrtGetGroupCount(self, count: CData) -> None:
        """aclError aclrtGetGroupCount(uint32_t *count), since CANN 8.1."""
    def aclrtCreateGroupInfo(self) -> CData:
        """aclrtGroupInfo * aclrtCreateGroupInfo(void), since CANN 8.1."""
    def aclrtDestroyGroupInfo(self, groupInfo: CData) -> None:
        """aclError aclrtDestroyGroupInfo(aclrtGroupInfo *groupInfo), since CANN 8.1."""
    def aclrtGetAllGroupInfo(self, groupInfo: CData) -> None:
        """aclError aclrtGetAllGroupInfo(aclrtGroupInfo *groupInfo), since CANN 8.1."""
    def aclrtGetGroupInfoDetail(self, groupInfo: CData, groupIndex: int, attr: int, attrValue: Memory, valueLen: int, paramRetSize: CData) -> None:
        """aclError aclrtGetGroupInfoDetail(const aclrtGroupInfo *groupInfo, int32_t groupIndex, aclrtGroupAttr attr, void *attrValue, size_t valueLen, size_t *paramRetSize), since CANN 8.1."""
    def aclrtDeviceCanAccessPeer(self, canAccessPeer: CData, deviceId: int, peerDeviceId: int) -> None:
        """aclError aclrtDeviceCanAccessPeer(int32_t *canAccessPeer, int32_t deviceId, int32_t peerDeviceId), since CANN 8.1."""
    def aclrtDeviceEnablePeerAccess(self, peerDeviceId: int, flags: int) -> None:
        """aclError aclrtDeviceEnablePeerAccess(int32_t peerDeviceId, uint32_t flags), since CANN 8.1."""
    def aclrtDeviceDisablePeerAccess(self, peerDeviceId: int) -> None:
        """aclError aclrtDeviceDisablePeerAccess(int32_t peerDeviceId), since CANN 8.1."""
    def aclrtSetDeviceSatMode(self, mode: int) -> None:
        """aclError aclrtSetDeviceSatMode(aclrtFloatOverflowMode mode), since CANN 8.1."""
    def aclrtGetDeviceSatMode(self, mode: CData) -> None:
        """aclError aclrtGetDeviceSatMode(aclrtFloatOverflowMode *mode), since CANN 8.1."""
    def aclrtQueryDeviceStatus(self, deviceId: int, deviceStatus: CData) -> None:
        """aclError aclrtQueryDeviceStatus(int32_t deviceId, aclrtDeviceStatus *deviceStatus), since CANN 8.1."""
    def aclrtDeviceGetBareTgid(self, pid: CData) -> None:
        """aclError aclrtDeviceGetBareTgid(int32_t *pid), since CANN 8.1."""
    def aclrtDeviceTaskAbort(self, deviceId: int, timeout: int) -> None:
        """aclError aclrtDeviceTaskAbort(int32_t deviceId, uint32_t timeout), since CANN 8.1."""
    def aclrtGetDeviceInfo(self, deviceId: int, attr: int, value: CData) -> None:
        """aclError aclrtGetDeviceInfo(uint32_t deviceId, aclrtDevAttr attr, int64_t *value), since CANN 8.5."""
    def aclrtGetDeviceCapability(self, deviceId: int, devFeatureType: int, value: CData) -> None:
        """aclError aclrtGetDeviceCapability(int32_t deviceId, aclrtDevFeatureType devFeatureType, int32_t *value), since CANN 8.5."""
    def aclrtDeviceGetUuid(self, deviceId: int, uuid: CData) -> None:
        """aclError aclrtDeviceGetUuid(int32_t deviceId, aclrtUuid *uuid), since CANN 8.5."""
    def aclrtDeviceSetLimit(self, limit: int, value: int) -> None:
        """aclError aclrtDeviceSetLimit(aclrtDeviceLimit limit, size_t value), since CANN master."""
    def aclrtDeviceGetLimit(self, limit: int, value: CData) -> None:
        """aclError aclrtDeviceGetLimit(aclrtDeviceLimit limit, size_t *value), since CANN master."""
    def aclrtDeviceGetPCIBusId(self, deviceId: int, pciBusId: CData, len: int) -> None:
        """aclError aclrtDeviceGetPCIBusId(int32_t deviceId, char *pciBusId, int32_t len), since CANN master."""
    def aclrtDeviceGetByPCIBusId(self, pciBusId: bytes | CData, deviceId: CData) -> None:
        """aclError aclrtDeviceGetByPCIBusId(const char *pciBusId, int32_t *deviceId), since CANN master."""
    def aclrtDeviceGetHostAtomicCapabilities(self, capabilities: CData, operations: CData, count: int, deviceId: int) -> None:
        """aclError aclrtDeviceGetHostAtomicCapabilities(uint32_t *capabilities, const aclrtAtomicOperation *operations, const uint32_t count, int32_t deviceId), since CANN 9.1."""
    def aclrtDeviceGetP2PAtomicCapabilities(self, capabilities: CData, operations: CData, count: int, srcDeviceId: int, dstDeviceId: int) -> None:
        """aclError aclrtDeviceGetP2PAtomicCapabilities(uint32_t *capabilities, const aclrtAtomicOperation *operations, const uint32_t count, int32_t srcDeviceId, int32_t dstDeviceId), since CANN 9.1."""
    def aclrtGetPrimaryCtxState(self, deviceId: int, flags: CData, active: CData) -> None:
        """aclError aclrtGetPrimaryCtxState(int32_t deviceId, uint32_t *flags, int32_t *active), since CANN 8.5."""
    def aclrtGetDeviceResLimit(self, deviceId: int, type: int, value: CData) -> None:
        """aclError aclrtGetDeviceResLimit(int32_t deviceId, aclrtDevResLimitType type, uint32_t *value), since CANN 8.5."""
    def aclrtSetDeviceResLimit(self, deviceId: int, type: int, value: int) -> None:
        """aclError aclrtSetDeviceResLimit(int32_t deviceId, aclrtDevResLimitType type, uint32_t value), since CANN 8.5."""
    def aclrtResetDeviceResLimit(self, deviceId: int) -> None:
        """aclError aclrtResetDeviceResLimit(int32_t deviceId), since CANN 8.5."""
    def aclrtGetResInCurrentThread(self, type: int, value: CData) -> None:
        """aclError aclrtGetResInCurrentThread(aclrtDevResLimitType type, uint32_t *value), since CANN 8.5."""
    def aclrtGetDevicesTopo(self, deviceId: int, otherDeviceId: int, value: CData) -> None:
        """aclError aclrtGetDevicesTopo(uint32_t deviceId, uint32_t otherDeviceId, uint64_t *value), since CANN 8.5."""
    def aclrtGetLogicDevIdByUserDevId(self, userDevid: int, logicDevId: CData) -> None:
        """aclError aclrtGetLogicDevIdByUserDevId(const int32_t userDevid, int32_t *const logicDevId), since CANN 8.5."""
    def aclrtGetUserDevIdByLogicDevId(self, logicDevId: int, userDevid: CData) -> None:
        """aclError aclrtGetUserDevIdByLogicDevId(const int32_t logicDevId, int32_t *const userDevid), since CANN 8.5."""
    def aclrtGetLogicDevIdByPhyDevId(self, phyDevId: int, logicDevId: CData) -> None:
        """aclError aclrtGetLogicDevIdByPhyDevId(const int32_t phyDevId, int32_t *const logicDevId), since CANN 8.5."""
    def aclrtGetPhyDevIdByLogicDevId(self, logicDevId: int, phyDevId: CData) -> None:
        """aclError aclrtGetPhyDevIdByLogicDevId(const int32_t logicDevId, int32_t *const phyDevId), since CANN 8.5."""
    def aclrtGetUserDevIdByPhyDevId(self, phyDevId: int, userDevId: CData) -> None:
        """aclError aclrtGetUserDevIdByPhyDevId(const int32_t phyDevId, int32_t *const userDevId), since CANN 9.1."""
    def aclrtGetPhyDevIdByUserDevId(self, userDevId: int, phyDevId: CData) -> None:
        """aclError aclrtGetPhyDevIdByUserDevId(const int32_t userDevId, int32_t *const phyDevId), since CANN 9.1."""
    def aclrtRegDeviceStateCallback(self, regName: bytes | CData, callback: CData, args: Memory) -> None:
        """aclError aclrtRegDeviceStateCallback(const char *regName, aclrtDeviceStateCallback callback, void *args), since CANN 8.5."""
    def aclrtSetDeviceTaskAbortCallback(self, regName: bytes | CData, callback: CData, args: Memory) -> None:
        """aclError aclrtSetDeviceTaskAbortCallback(const char *regName, aclrtDeviceTaskAbortCallback callback, void *args), since CANN 8.5."""
    def aclrtDevicePeerAccessStatus(self, deviceId: int, peerDeviceId: int, status: CData) -> None:
        """aclError aclrtDevicePeerAccessStatus(int32_t deviceId, int32_t peerDeviceId, int32_t *status), since CANN 8.5."""
    def aclrtGetErrorVerbose(self, deviceId: int, errorInfo: CData) -> None:
        """aclError aclrtGetErrorVerbose(int32_t deviceId, aclrtErrorInfo *errorInfo), since CANN 8.5."""
    def aclrtRepairError(self, deviceId: int, errorInfo: CData) -> None:
        """aclError aclrtRepairError(int32_t deviceId, const aclrtErrorInfo *errorInfo), since CANN 8.5."""
    def aclrtDeviceL2CacheFlush(self, rsv: Memory) -> None:
        """aclError aclrtDeviceL2CacheFlush(void *rsv), since CANN master."""
    def aclrtAllocatorCreateDesc(self) -> CData:
        """aclrtAllocatorDesc aclrtAllocatorCreateDesc(void), since CANN 8.1."""
    def aclrtAllocatorDestroyDesc(self, allocatorDesc: CData) -> None:
        """aclError aclrtAllocatorDestroyDesc(aclrtAllocatorDesc allocatorDesc), since CANN 8.1."""
    def aclrtAllocatorSetObjToDesc(self, allocatorDesc: CData, allocator: CData) -> None:
        """aclError aclrtAllocatorSetObjToDesc(aclrtAllocatorDesc allocatorDesc, aclrtAllocator allocator), since CANN 8.1."""
    def aclrtAllocatorSetAllocFuncToDesc(self, allocatorDesc: CData, func: CData) -> None:
        """aclError aclrtAllocatorSetAllocFuncToDesc(aclrtAllocatorDesc allocatorDesc, aclrtAllocatorAllocFunc func), since CANN 8.1."""
    def aclrtAllocatorSetFreeFuncToDesc(self, allocatorDesc: CData, func: CData) -> None:
        """aclError aclrtAllocatorSetFreeFuncToDesc(aclrtAllocatorDesc allocatorDesc, aclrtAllocatorFreeFunc func), since CANN 8.1."""
    def aclrtAllocatorSetAllocAdviseFuncToDesc(self, allocatorDesc: CData, func: CData) -> None:
        """aclError aclrtAllocatorSetAllocAdviseFuncToDesc(aclrtAllocatorDesc allocatorDesc, aclrtAllocatorAllocAdviseFunc func), since CANN 8.1."""
    def aclrtAllocatorSetGetAddrFromBlockFuncToDesc(self, allocatorDesc: CData, func: CData) -> None:
        """aclError aclrtAllocatorSetGetAddrFromBlockFuncToDesc(aclrtAllocatorDesc allocatorDesc, aclrtAllocatorGetAddrFromBlockFunc func), since CANN 8.1."""
    def aclrtAllocatorRegister(self, stream: CData | Stream, allocatorDesc: CData) -> None:
        """aclError aclrtAllocatorRegister(aclrtStream stream, aclrtAllocatorDesc allocatorDesc), since CANN 8.1."""
    def aclrtAllocatorGetByStream(self, stream: CData | Stream, allocatorDesc: CData, allocator: CData, allocFunc: CData, freeFunc: CData, allocAdviseFunc: CData, getAddrFromBlockFunc: CData) -> None:
        """aclError aclrtAllocatorGetByStream(aclrtStream stream, aclrtAllocatorDesc *allocatorDesc, aclrtAllocator *allocator, aclrtAllocatorAllocFunc *allocFunc, aclrtAllocatorFreeFunc *freeFunc, aclrtAllocatorAllocAdviseFunc *allocAdviseFunc, aclrtAllocatorGetAddrFromBlockFunc *getAddrFromBlockFunc), since CANN 8.5."""
    def aclrtAllocatorUnregister(self, stream: CData | Stream) -> None:
        """aclError aclrtAllocatorUnregister(aclrtStream stream), since CANN 8.1."""
    def aclrtSubscribeReport(self, threadId: int, stream: CData | Stream) -> None:
        """aclError aclrtSubscribeReport(uint64_t threadId, aclrtStream stream), since CANN 8.1."""
    def aclrtLaunchCallback(self, fn: CData, userData: Memory, blockType: int, stream: CData | Stream) -> None:
        """aclError aclrtLaunchCallback(aclrtCallback fn, void *userData, aclrtCallbackBlockType blockType, aclrtStream stream), since CANN 8.1."""
    def aclrtProcessReport(self, timeout: int) -> None:
        """aclError aclrtProcessReport(int32_t timeout), since CANN 8.1."""
    def aclrtUnSubscribeReport(self, threadId: int, stream: CData | Stream) -> None:
        """aclError aclrtUnSubscribeReport(uint64_t threadId, aclrtStream stream), since CANN 8.1."""
    def aclrtSetStreamFailureMode(self, stream: CData | Stream, mode: int) -> None:
        """aclError aclrtSetStreamFailureMode(aclrtStream stream, uint64_t mode), since CANN 8.1."""
    def aclrtStreamGetId(self, stream: CData | Stream, streamId: CData) -> None:
        """aclError aclrtStreamGetId(aclrtStream stream, int32_t *streamId), since CANN 8.1."""
    def aclrtCreateStreamConfigHandle(self) -> CData:
        """aclrtStreamConfigHandle * aclrtCreateStreamConfigHandle(void), since CANN 8.1."""
    def aclrtDestroyStreamConfigHandle(self, handle: CData) -> None:
        """aclError aclrtDestroyStreamConfigHandle(aclrtStreamConfigHandle *handle), since CANN 8.1."""
    def aclrtSetStreamConfigOpt(self, handle: CData, attr: int, attrValue: bytes | Memory, valueSize: int) -> None:
        """aclError aclrtSetStreamConfigOpt(aclrtStreamConfigHandle *handle, aclrtStreamConfigAttr attr, const void *attrValue, size_t valueSize), since CANN 8.1."""
    def aclrtCreateStream(self, stream: CData) -> None:
        """aclError aclrtCreateStream(aclrtStream *stream), since CANN 8.1."""
    def aclrtCreateStreamV2(self, stream: CData, handle: CData) -> None:
        """aclError aclrtCreateStreamV2(aclrtStream *stream, const aclrtStreamConfigHandle *handle), since CANN 8.1."""
    def aclrtCreateStreamWithConfig(self, stream: CData, priority: int, flag: int) -> None:
        """aclError aclrtCreateStreamWithConfig(aclrtStream *stream, uint32_t priority, uint32_t flag), since CANN 8.1."""
    def aclrtDestroyStream(self, stream: CData | Stream) -> None:
        """aclError aclrtDestroyStream(aclrtStream stream), since CANN 8.1."""
    def aclrtDestroyStreamForce(self, stream: CData | Stream) -> None:
        """aclError aclrtDestroyStreamForce(aclrtStream stream), since CANN 8.1."""
    def aclrtSynchronizeStream(self, stream: CData | Stream) -> None:
        """aclError aclrtSynchronizeStream(aclrtStream stream), since CANN 8.1."""
    def aclrtSynchronizeStreamWithTimeout(self, stream: CData | Stream, timeout: int) -> None:
        """aclError aclrtSynchronizeStreamWithTimeout(aclrtStream stream, int32_t timeout), since CANN 8.1."""
    def aclrtStreamQuery(self, stream: CData | Stream, status: CData) -> None:
        """aclError aclrtStreamQuery(aclrtStream stream, aclrtStreamStatus *status), since CANN 8.1."""
    def aclrtStreamGetPriority(self, stream: CData | Stream, priority: CData) -> None:
        """aclError aclrtStreamGetPriority(aclrtStream stream, uint32_t *priority), since CANN 8.5."""
    def aclrtStreamGetFlags(self, stream: CData | Stream, flags: CData) -> None:
        """aclError aclrtStreamGetFlags(aclrtStream stream, uint32_t *flags), since CANN 8.5."""
    def aclrtSetStreamOverflowSwitch(self, stream: CData | Stream, flag: int) -> None:
        """aclError aclrtSetStreamOverflowSwitch(aclrtStream stream, uint32_t flag), since CANN 8.1."""
    def aclrtGetStreamOverflowSwitch(self, stream: CData | Stream, flag: CData) -> None:
        """aclError aclrtGetStreamOverflowSwitch(aclrtStream stream, uint32_t *flag), since CANN 8.1."""
    def aclrtGetOverflowStatus(self, outputAddr: Memory, outputSize: int, stream: CData | Stream) -> None:
        """aclError aclrtGetOverflowStatus(void *outputAddr, size_t outputSize, aclrtStream stream), since CANN 8.1."""
    def aclrtResetOverflowStatus(self, stream: CData | Stream) -> None:
        """aclError aclrtResetOverflowStatus(aclrtStream stream), since CANN 8.1."""
    def aclrtSubscribeHostFunc(self, hostFuncThreadId: int, exeStream: CData | Stream) -> None:
        """aclError aclrtSubscribeHostFunc(uint64_t hostFuncThreadId, aclrtStream exeStream), since CANN 8.1."""
    def aclrtProcessHostFunc(self, timeout: int) -> None:
        """aclError aclrtProcessHostFunc(int32_t timeout), since CANN 8.1."""
    def aclrtUnSubscribeHostFunc(self, hostFuncThreadId: int, exeStream: CData | Stream) -> None:
        """aclError aclrtUnSubscribeHostFunc(uint64_t hostFuncThreadId, aclrtStream exeStream), since CANN 8.1."""
    def aclrtStreamAbort(self, stream: CData | Stream) -> None:
        """aclError aclrtStreamAbort(aclrtStream stream), since CANN 8.1."""
    def aclrtGetStreamAvailableNum(self, streamCount: CData) -> None:
        """aclError aclrtGetStreamAvailableNum(uint32_t *streamCount), since CANN 8.5."""
    def aclrtSetStreamAttribute(self, stream: CData | Stream, stmAttrType: int, value: CData) -> None:
        """aclError aclrtSetStreamAttribute(aclrtStream stream, aclrtStreamAttr stmAttrType, aclrtStreamAttrValue *value), since CANN 8.5."""
    def aclrtGetStreamAttribute(self, stream: CData | Stream, stmAttrType: int, value: CData) -> None:
        """aclError aclrtGetStreamAttribute(aclrtStream stream, aclrtStreamAttr stmAttrType, aclrtStreamAttrValue *value), since CANN 8.5."""
    def aclrtDeviceGetStreamPriorityRange(self, leastPriority: CData, greatestPriority: CData) -> None:
        """aclError aclrtDeviceGetStreamPriorityRange(int32_t *leastPriority, int32_t *greatestPriority), since CANN 8.5."""
    def aclrtCtxGetCurrentDefaultStream(self, stream: CData) -> None:
        """aclError aclrtCtxGetCurrentDefaultStream(aclrtStream *stream), since CANN 8.5."""
    def aclrtGetStreamResLimit(self, stream: CData | Stream, type: int, value: CData) -> None:
        """aclError aclrtGetStreamResLimit(aclrtStream stream, aclrtDevResLimitType type, uint32_t *value), since CANN 8.5."""
    def aclrtSetStreamResLimit(self, stream: CData | Stream, type: int, value: int) -> None:
        """aclError aclrtSetStreamResLimit(aclrtStream stream, aclrtDevResLimitType type, uint32_t value), since CANN 8.5."""
    def aclrtResetStreamResLimit(self, stream: CData | Stream) -> None:
        """aclError aclrtResetStreamResLimit(aclrtStream stream), since CANN 8.5."""
    def aclrtUseStreamResInCurrentThread(self, stream: CData | Stream) -> None:
        """aclError aclrtUseStreamResInCurrentThread(aclrtStream stream), since CANN 8.5."""
    def aclrtUnuseStreamResInCurrentThread(self, stream: CData | Stream) -> None:
        """aclError aclrtUnuseStreamResInCurrentThread(aclrtStream stream), since CANN 8.5."""
    def aclrtCtxGetFloatOverflowAddr(self, overflowAddr: CData) -> None:
        """aclError aclrtCtxGetFloatOverflowAddr(void **overflowAddr), since CANN 8.5."""
    def aclrtGetFloatOverflowStatus(self, outputAddr: Memory, outputSize: int, stream: CData | Stream) -> None:
        """aclError aclrtGetFloatOverflowStatus(void *outputAddr, uint64_t outputSize, aclrtStream stream), since CANN 8.5."""
    def aclrtResetFloatOverflowStatus(self, stream: CData | Stream) -> None:
        """aclError aclrtResetFloatOverflowStatus(aclrtStream stream), since CANN 8.5."""
    def aclrtNpuGetFloatOverFlowStatus(self, outputAddr: Memory, outputSize: int, checkMode: int, stream: CData | Stream) -> None:
        """aclError aclrtNpuGetFloatOverFlowStatus(void *outputAddr, uint64_t outputSize, uint32_t checkMode, aclrtStream stream), since CANN 8.5."""
    def aclrtNpuClearFloatOverFlowStatus(self, checkMode: int, stream: CData | Stream) -> None:
        """aclError aclrtNpuClearFloatOverFlowStatus(uint32_t checkMode, aclrtStream stream), since CANN 8.5."""
    def aclrtLaunchHostFunc(self, stream: CData | Stream, fn: CData, args: Memory) -> None:
        """aclError aclrtLaunchHostFunc(aclrtStream stream, aclrtHostFunc fn, void *args), since CANN 8.5."""
    def aclrtRegStreamStateCallback(self, regName: bytes | CData, callback: CData, args: Memory) -> None:
        """aclError aclrtRegStreamStateCallback(const char *regName, aclrtStreamStateCallback callback, void *args), since CANN 8.5."""
    def aclrtStreamStop(self, stream: CData | Stream) -> None:
        """aclError aclrtStreamStop(aclrtStream stream), since CANN 8.5."""
    def aclrtCreateEvent(self, event: CData) -> None:
        """aclError aclrtCreateEvent(aclrtEvent *event), since CANN 8.1."""
    def aclrtCreateEventWithFlag(self, event: CData, flag: int) -> None:
        """aclError aclrtCreateEventWithFlag(aclrtEvent *event, uint32_t flag), since CANN 8.1."""
    def aclrtCreateEventExWithFlag(self, event: CData, flag: int) -> None:
        """aclError aclrtCreateEventExWithFlag(aclrtEvent *event, uint32_t flag), since CANN 8.1."""
    def aclrtDestroyEvent(self, event: CData | Event) -> None:
        """aclError aclrtDestroyEvent(aclrtEvent event), since CANN 8.1."""
    def aclrtRecordEvent(self, event: CData | Event, stream: CData | Stream) -> None:
        """aclError aclrtRecordEvent(aclrtEvent event, aclrtStream stream), since CANN 8.1."""
    def aclrtRecordEventWithFlag(self, event: CData | Event, stream: CData | Stream, flag: int) -> None:
        """aclError aclrtRecordEventWithFlag(aclrtEvent event, aclrtStream stream, uint32_t flag), since CANN master."""
    def aclrtResetEvent(self, event: CData | Event, stream: CData | Stream) -> None:
        """aclError aclrtResetEvent(aclrtEvent event, aclrtStream stream), since CANN 8.1."""
    def aclrtQueryEvent(self, event: CData | Event, status: CData) -> None:
        """aclError aclrtQueryEvent(aclrtEvent event, aclrtEventStatus *status), since CANN 8.1."""
    def aclrtQueryEventStatus(self, event: CData | Event, status: CData) -> None:
        """aclError aclrtQueryEventStatus(aclrtEvent event, aclrtEventRecordedStatus *status), since CANN 8.1."""
    def aclrtQueryEventWaitStatus(self, event: CData | Event, status: CData) -> None:
        """aclError aclrtQueryEventWaitStatus(aclrtEvent event, aclrtEventWaitStatus *status), since CANN 8.1."""
    def aclrtSynchronizeEvent(self, event: CData | Event) -> None:
        """aclError aclrtSynchronizeEvent(aclrtEvent event), since CANN 8.1."""
    def aclrtSynchronizeEventWithTimeout(self, event: CData | Event, timeout: int) -> None:
        """aclError aclrtSynchronizeEventWithTimeout(aclrtEvent event, int32_t timeout), since CANN 8.1."""
    def aclrtEventElapsedTime(self, ms: CData, startEvent: CData | Event, endEvent: CData | Event) -> None:
        """aclError aclrtEventElapsedTime(float *ms, aclrtEvent startEvent, aclrtEvent endEvent), since CANN 8.1."""
    def aclrtEventGetTimestamp(self, event: CData | Event, timestamp: CData) -> None:
        """aclError aclrtEventGetTimestamp(aclrtEvent event, uint64_t *timestamp), since CANN 8.1."""
    def aclrtStreamWaitEvent(self, stream: CData | Stream, event: CData | Event) -> None:
        """aclError aclrtStreamWaitEvent(aclrtStream stream, aclrtEvent event), since CANN 8.1."""
    def aclrtStreamWaitEventWithFlag(self, stream: CData | Stream, event: CData | Event, timeout: int, flag: int) -> None:
        """aclError aclrtStreamWaitEventWithFlag(aclrtStream stream, aclrtEvent event, uint32_t timeout, uint32_t flag), since CANN master."""
    def aclrtStreamWaitEventWithTimeout(self, stream: CData | Stream, event: CData | Event, timeout: int) -> None:
        """aclError aclrtStreamWaitEventWithTimeout(aclrtStream stream, aclrtEvent event, int32_t timeout), since CANN 8.5."""
    def aclrtCreateNotify(self, notify: CData, flag: int) -> None:
        """aclError aclrtCreateNotify(aclrtNotify *notify, uint64_t flag), since CANN 8.5."""
    def aclrtDestroyNotify(self, notify: CData) -> None:
        """aclError aclrtDestroyNotify(aclrtNotify notify), since CANN 8.5."""
    def aclrtCntNotifyCreate(self, cntNotify: CData, flag: int) -> None:
        """aclError aclrtCntNotifyCreate(aclrtCntNotify *cntNotify, uint64_t flag), since CANN 8.5."""
    def aclrtCntNotifyDestroy(self, cntNotify: CData) -> None:
        """aclError aclrtCntNotifyDestroy(aclrtCntNotify cntNotify), since CANN 8.5."""
    def aclrtRecordNotify(self, notify: CData, stream: CData | Stream) -> None:
        """aclError aclrtRecordNotify(aclrtNotify notify, aclrtStream stream), since CANN 8.5."""
    def aclrtWaitAndResetNotify(self, notify: CData, stream: CData | Stream, timeout: int) -> None:
        """aclError aclrtWaitAndResetNotify(aclrtNotify notify, aclrtStream stream, uint32_t timeout), since CANN 8.5."""
    def aclrtGetNotifyId(self, notify: CData, notifyId: CData) -> None:
        """aclError aclrtGetNotifyId(aclrtNotify notify, uint32_t *notifyId), since CANN 8.5."""
    def aclrtGetEventId(self, event: CData | Event, eventId: CData) -> None:
        """aclError aclrtGetEventId(aclrtEvent event, uint32_t *eventId), since CANN 8.5."""
    def aclrtGetEventAvailNum(self, eventCount: CData) -> None:
        """aclError aclrtGetEventAvailNum(uint32_t *eventCount), since CANN 8.5."""
    def aclrtNotifyBatchReset(self, notifies: CData, num: int) -> None:
        """aclError aclrtNotifyBatchReset(aclrtNotify *notifies, size_t num), since CANN 8.5."""
    def aclrtNotifyGetExportKey(self, notify: CData, key: CData, len: int, flags: int) -> None:
        """aclError aclrtNotifyGetExportKey(aclrtNotify notify, char *key, size_t len, uint64_t flags), since CANN 8.5."""
    def aclrtNotifyImportByKey(self, notify: CData, key: bytes | CData, flags: int) -> None:
        """aclError aclrtNotifyImportByKey(aclrtNotify *notify, const char *key, uint64_t flags), since CANN 8.5."""
    def aclrtNotifySetImportPid(self, notify: CData, pid: CData, num: int) -> None:
        """aclError aclrtNotifySetImportPid(aclrtNotify notify, int32_t *pid, size_t num), since CANN 8.5."""
    def aclrtNotifySetImportPidInterServer(self, notify: CData, serverPids: CData, num: int) -> None:
        """aclError aclrtNotifySetImportPidInterServer(aclrtNotify notify, aclrtServerPid *serverPids, size_t num), since CANN 8.5."""
    def aclrtCntNotifyRecord(self, cntNotify: CData, stream: CData | Stream, info: CData) -> None:
        """aclError aclrtCntNotifyRecord(aclrtCntNotify cntNotify, aclrtStream stream, aclrtCntNotifyRecordInfo *info), since CANN 8.5."""
    def aclrtCntNotifyWaitWithTimeout(self, cntNotify: CData, stream: CData | Stream, info: CData) -> None:
        """aclError aclrtCntNotifyWaitWithTimeout(aclrtCntNotify cntNotify, aclrtStream stream, aclrtCntNotifyWaitInfo *info), since CANN 8.5."""
    def aclrtCntNotifyReset(self, cntNotify: CData, stream: CData | Stream) -> None:
        """aclError aclrtCntNotifyReset(aclrtCntNotify cntNotify, aclrtStream stream), since CANN 8.5."""
    def aclrtCntNotifyGetId(self, cntNotify: CData, notifyId: CData) -> None:
        """aclError aclrtCntNotifyGetId(aclrtCntNotify cntNotify, uint32_t *notifyId), since CANN 8.5."""
    def aclrtIpcGetEventHandle(self, event: CData | Event, handle: CData) -> None:
        """aclError aclrtIpcGetEventHandle(aclrtEvent event, aclrtIpcEventHandle *handle), since CANN 8.5."""
    def aclrtMalloc(self, devPtr: CData, size: int, policy: int) -> None:
        """aclError aclrtMalloc(void **devPtr, size_t size, aclrtMemMallocPolicy policy), since CANN 8.1."""
    def aclrtMallocAlign32(self, devPtr: CData, size: int, policy: int) -> None:
        """aclError aclrtMallocAlign32(void **devPtr, size_t size, aclrtMemMallocPolicy policy), since CANN 8.1."""
    def aclrtMallocCached(self, devPtr: CData, size: int, policy: int) -> None:
        """aclError aclrtMallocCached(void **devPtr, size_t size, aclrtMemMallocPolicy policy), since CANN 8.1."""
    def aclrtMallocWithCfg(self, devPtr: CData, size: int, policy: int, cfg: CData) -> None:
        """aclError aclrtMallocWithCfg(void **devPtr, size_t size, aclrtMemMallocPolicy policy, aclrtMallocConfig *cfg), since CANN 8.1."""
    def aclrtMallocForTaskScheduler(self, devPtr: CData, size: int, policy: int, cfg: CData) -> None:
        """aclError aclrtMallocForTaskScheduler(void **devPtr, size_t size, aclrtMemMallocPolicy policy, aclrtMallocConfig *cfg), since CANN 8.1."""
    def aclrtMallocHostWithCfg(self, ptr: CData, size: int, cfg: CData) -> None:
        """aclError aclrtMallocHostWithCfg(void **ptr, uint64_t size, aclrtMallocConfig *cfg), since CANN 8.1."""
    def aclrtPointerGetAttributes(self, ptr: bytes | Memory, attributes: CData) -> None:
        """aclError aclrtPointerGetAttributes(const void *ptr, aclrtPtrAttributes *attributes), since CANN 8.1."""
    def aclrtMemFlush(self, devPtr: Memory, size: int) -> None:
        """aclError aclrtMemFlush(void *devPtr, size_t size), since CANN 8.1."""
    def aclrtMemInvalidate(self, devPtr: Memory, size: int) -> None:
        """aclError aclrtMemInvalidate(void *devPtr, size_t size), since CANN 8.1."""
    def aclrtFree(self, devPtr: Memory) -> None:
        """aclError aclrtFree(void *devPtr), since CANN 8.1."""
    def aclrtMallocHost(self, hostPtr: CData, size: int) -> None:
        """aclError aclrtMallocHost(void **hostPtr, size_t size), since CANN 8.1."""
    def aclrtFreeHost(self, hostPtr: Memory) -> None:
        """aclError aclrtFreeHost(void *hostPtr), since CANN 8.1."""
    def aclrtFreeWithDevSync(self, devPtr: Memory) -> None:
        """aclError aclrtFreeWithDevSync(void *devPtr), since CANN 8.5."""
    def aclrtFreeHostWithDevSync(self, hostPtr: Memory) -> None:
        """aclError aclrtFreeHostWithDevSync(void *hostPtr), since CANN 8.5."""
    def aclrtMemcpy(self, dst: Memory, destMax: int, src: bytes | Memory, count: int, kind: int) -> None:
        """aclError aclrtMemcpy(void *dst, size_t destMax, const void *src, size_t count, aclrtMemcpyKind kind), since CANN 8.1."""
    def aclrtMemset(self, devPtr: Memory, maxCount: int, value: int, count: int) -> None:
        """aclError aclrtMemset(void *devPtr, size_t maxCount, int32_t value, size_t count), since CANN 8.1."""
    def aclrtMemcpyAsync(self, dst: Memory, destMax: int, src: bytes | Memory, count: int, kind: int, stream: CData | Stream) -> None:
        """aclError aclrtMemcpyAsync(void *dst, size_t destMax, const void *src, size_t count, aclrtMemcpyKind kind, aclrtStream stream), since CANN 8.1."""
    def aclrtMemsetD32(self, ptr: Memory, memSize: int, value: int, N: int) -> None:
        """aclError aclrtMemsetD32(void *ptr, size_t memSize, uint32_t value, size_t N), since CANN 9.1."""
    def aclrtMemsetD32Async(self, ptr: Memory, memSize: int, value: int, N: int, stream: CData | Stream) -> None:
        """aclError aclrtMemsetD32Async(void *ptr, size_t memSize, uint32_t value, size_t N, aclrtStream stream), since CANN 9.1."""
    def aclrtMemcpyAsyncWithCondition(self, dst: Memory, destMax: int, src: bytes | Memory, count: int, kind: int, stream: CData | Stream) -> None:
        """aclError aclrtMemcpyAsyncWithCondition(void *dst, size_t destMax, const void *src, size_t count, aclrtMemcpyKind kind, aclrtStream stream), since CANN 8.1."""
    def aclrtMemcpy2d(self, dst: Memory, dpitch: int, src: bytes | Memory, spitch: int, width: int, height: int, kind: int) -> None:
        """aclError aclrtMemcpy2d(void *dst, size_t dpitch, const void *src, size_t spitch, size_t width, size_t height, aclrtMemcpyKind kind), since CANN 8.1."""
    def aclrtMemcpy2dAsync(self, dst: Memory, dpitch: int, src: bytes | Memory, spitch: int, width: int, height: int, kind: int, stream: CData | Stream) -> None:
        """aclError aclrtMemcpy2dAsync(void *dst, size_t dpitch, const void *src, size_t spitch, size_t width, size_t height, aclrtMemcpyKind kind, aclrtStream stream), since CANN 8.1."""
    def aclrtMemsetAsync(self, devPtr: Memory, maxCount: int, value: int, count: int, stream: CData | Stream) -> None:
        """aclError aclrtMemsetAsync(void *devPtr, size_t maxCount, int32_t value, size_t count, aclrtStream stream), since CANN 8.1."""
    def aclrtGetMemInfo(self, attr: int, free: CData, total: CData) -> None:
        """aclError aclrtGetMemInfo(aclrtMemAttr attr, size_t *free, size_t *total), since CANN 8.1."""
    def aclrtGetMemUsageInfo(self, deviceId: int, memUsageInfo: CData, inputNum: int, outputNum: CData) -> None:
        """aclError aclrtGetMemUsageInfo(int32_t deviceId, aclrtMemUsageInfo *memUsageInfo, size_t inputNum, size_t *outputNum), since CANN 8.5."""
    def aclrtGetMemUceInfo(self, deviceId: int, memUceInfoArray: CData, arraySize: int, retSize: CData) -> None:
        """aclError aclrtGetMemUceInfo(int32_t deviceId, aclrtMemUceInfo *memUceInfoArray, size_t arraySize, size_t *retSize), since CANN 8.1."""
    def aclrtMemUceRepair(self, deviceId: int, memUceInfoArray: CData, arraySize: int) -> None:
        """aclError aclrtMemUceRepair(int32_t deviceId, aclrtMemUceInfo *memUceInfoArray, size_t arraySize), since CANN 8.1."""
    def aclrtGetMemcpyDescSize(self, kind: int, descSize: CData) -> None:
        """aclError aclrtGetMemcpyDescSize(aclrtMemcpyKind kind, size_t *descSize), since CANN 8.1."""
    def aclrtSetMemcpyDesc(self, desc: Memory, kind: int, srcAddr: Memory, dstAddr: Memory, count: int, config: Memory) -> None:
        """aclError aclrtSetMemcpyDesc(void *desc, aclrtMemcpyKind kind, void *srcAddr, void *dstAddr, size_t count, void *config), since CANN 8.1."""
    def aclrtMemcpyAsyncWithOffset(self, dst: CData, destMax: int, dstDataOffset: int, src: CData, count: int, srcDataOffset: int, kind: int, stream: CData | Stream) -> None:
        """aclError aclrtMemcpyAsyncWithOffset(void **dst, size_t destMax, size_t dstDataOffset, const void **src, size_t count, size_t srcDataOffset, aclrtMemcpyKind kind, aclrtStream stream), since CANN 8.5."""
    def aclrtMemcpyAsyncWithDesc(self, desc: Memory, kind: int, stream: CData | Stream) -> None:
        """aclError aclrtMemcpyAsyncWithDesc(void *desc, aclrtMemcpyKind kind, aclrtStream stream), since CANN 8.1."""
    def aclrtMemcpyBatch(self, dsts: CData, destMaxs: CData, srcs: CData, sizes: CData, numBatches: int, attrs: CData, attrsIndexes: CData, numAttrs: int, failIndex: CData) -> None:
        """aclError aclrtMemcpyBatch(void **dsts, size_t *destMaxs, void **srcs, size_t *sizes, size_t numBatches, aclrtMemcpyBatchAttr *attrs, size_t *attrsIndexes, size_t numAttrs, size_t *failIndex), since CANN 8.5."""
    def aclrtMemcpyBatchV2(self, dsts: CData, destMaxs: CData, srcs: CData, sizes: CData, numBatches: int, attrs: CData, attrsIndexes: CData, numAttrs: int) -> None:
        """aclError aclrtMemcpyBatchV2(void **dsts, size_t *destMaxs, void **srcs, size_t *sizes, size_t numBatches, aclrtMemcpyBatchAttr *attrs, size_t *attrsIndexes, size_t numAttrs), since CANN 9.1."""
    def aclrtMemcpyBatchAsync(self, dsts: CData, destMaxs: CData, srcs: CData, sizes: CData, numBatches: int, attrs: CData, attrsIndexes: CData, numAttrs: int, failIndex: CData, stream: CData | Stream) -> None:
        """aclError aclrtMemcpyBatchAsync(void **dsts, size_t *destMaxs, void **srcs, size_t *sizes, size_t numBatches, aclrtMemcpyBatchAttr *attrs, size_t *attrsIndexes, size_t numAttrs, size_t *failIndex, aclrtStream stream), since CANN 8.5."""
    def aclrtMemcpyBatchAsyncV2(self, dsts: CData, destMaxs: CData, srcs: CData, sizes: CData, numBatches: int, attrs: CData, attrsIndexes: CData, numAttrs: int, stream: CData | Stream) -> None:
        """aclError aclrtMemcpyBatchAsyncV2(void **dsts, size_t *destMaxs, void **srcs, size_t *sizes, size_t numBatches, aclrtMemcpyBatchAttr *attrs, size_t *attrsIndexes, size_t numAttrs, aclrtStream stream), since CANN 9.1."""
    def aclrtCheckMemType(self, addrList: CData, size: int, memType: int, checkResult: CData, reserve: int) -> None:
        """aclError aclrtCheckMemType(void **addrList, uint32_t size, uint32_t memType, uint32_t *checkResult, uint32_t reserve), since CANN 8.5."""
    def aclrtMemManagedGetAttr(self, attribute: int, ptr: bytes | Memory, size: int, data: Memory, dataSize: int) -> None:
        """aclError aclrtMemManagedGetAttr(aclrtMemManagedRangeAttribute attribute, const void *ptr, size_t size, void *data, size_t dataSize), since CANN 9.1."""
    def aclrtMemManagedGetAttrs(self, attributes: CData, numAttributes: int, ptr: bytes | Memory, size: int, data: CData, dataSizes: CData) -> None:
        """aclError aclrtMemManagedGetAttrs(aclrtMemManagedRangeAttribute *attributes, size_t numAttributes, const void *ptr, size_t size, void **data, size_t *dataSizes), since CANN 9.1."""
    def aclrtHostRegister(self, ptr: Memory, size: int, type: int, devPtr: CData) -> None:
        """aclError aclrtHostRegister(void *ptr, uint64_t size, aclrtHostRegisterType type, void **devPtr), since CANN 8.1."""
    def aclrtHostRegisterV2(self, ptr: Memory, size: int, flag: int) -> None:
        """aclError aclrtHostRegisterV2(void *ptr, uint64_t size, uint32_t flag), since CANN 8.5."""
    def aclrtHostGetDevicePointer(self, pHost: Memory, pDevice: CData, flag: int) -> None:
        """aclError aclrtHostGetDevicePointer(void *pHost, void **pDevice, uint32_t flag), since CANN 8.5."""
    def aclrtHostUnregister(self, ptr: Memory) -> None:
        """aclError aclrtHostUnregister(void *ptr), since CANN 8.1."""
    def aclrtHostMemMapCapabilities(self, deviceId: int, hacType: int, capabilities: CData) -> None:
        """aclError aclrtHostMemMapCapabilities(uint32_t deviceId, aclrtHacType hacType, aclrtHostMemMapCapability *capabilities), since CANN 9.0."""
    def aclrtMemAllocManaged(self, ptr: CData, size: int, flag: int) -> None:
        """aclError aclrtMemAllocManaged(void **ptr, uint64_t size, uint32_t flag), since CANN 9.0."""
    def aclrtReserveMemAddress(self, virPtr: CData, size: int, alignment: int, expectPtr: Memory, flags: int) -> None:
        """aclError aclrtReserveMemAddress(void **virPtr, size_t size, size_t alignment, void *expectPtr, uint64_t flags), since CANN 8.1."""
    def aclrtReleaseMemAddress(self, virPtr: Memory) -> None:
        """aclError aclrtReleaseMemAddress(void *virPtr), since CANN 8.1."""
    def aclrtMallocPhysical(self, handle: CData, size: int, prop: CData, flags: int) -> None:
        """aclError aclrtMallocPhysical(aclrtDrvMemHandle *handle, size_t size, const aclrtPhysicalMemProp *prop, uint64_t flags), since CANN 8.1."""
    def aclrtFreePhysical(self, handle: CData) -> None:
        """aclError aclrtFreePhysical(aclrtDrvMemHandle handle), since CANN 8.1."""
    def aclrtMapMem(self, virPtr: Memory, size: int, offset: int, handle: CData, flags: int) -> None:
        """aclError aclrtMapMem(void *virPtr, size_t size, size_t offset, aclrtDrvMemHandle handle, uint64_t flags), since CANN 8.1."""
    def aclrtUnmapMem(self, virPtr: Memory) -> None:
        """aclError aclrtUnmapMem(void *virPtr), since CANN 8.1."""
    def aclrtMemMapNoAccess(self, virPtr: Memory, size: int, offset: int, handle: CData, flags: int) -> None:
        """aclError aclrtMemMapNoAccess(void *virPtr, size_t size, size_t offset, aclrtDrvMemHandle handle, uint64_t flags), since CANN master."""
    def aclrtMemExportToShareableHandle(self, handle: CData, handleType: int, flags: int, shareableHandle: CData) -> None:
        """aclError aclrtMemExportToShareableHandle(aclrtDrvMemHandle handle, aclrtMemHandleType handleType, uint64_t flags, uint64_t *shareableHandle), since CANN 8.1."""
    def aclrtMemExportToShareableHandleV2(self, handle: CData, flags: int, shareType: int, shareableHandle: Memory) -> None:
        """aclError aclrtMemExportToShareableHandleV2(aclrtDrvMemHandle handle, uint64_t flags, aclrtMemSharedHandleType shareType, void *shareableHandle), since CANN 8.5."""
    def aclrtMemImportFromShareableHandle(self, shareableHandle: int, deviceId: int, handle: CData) -> None:
        """aclError aclrtMemImportFromShareableHandle(uint64_t shareableHandle, int32_t deviceId, aclrtDrvMemHandle *handle), since CANN 8.1."""
    def aclrtMemImportFromShareableHandleV2(self, shareableHandle: Memory, shareType: int, flags: int, handle: CData) -> None:
        """aclError aclrtMemImportFromShareableHandleV2(void *shareableHandle, aclrtMemSharedHandleType shareType, uint64_t flags, aclrtDrvMemHandle *handle), since CANN 8.5."""
    def aclrtMemSetPidToShareableHandle(self, shareableHandle: int, pid: CData, pidNum: int) -> None:
        """aclError aclrtMemSetPidToShareableHandle(uint64_t shareableHandle, int32_t *pid, size_t pidNum), since CANN 8.1."""
    def aclrtMemSetPidToShareableHandleV2(self, shareableHandle: Memory, shareType: int, pid: CData, pidNum: int) -> None:
        """aclError aclrtMemSetPidToShareableHandleV2(void *shareableHandle, aclrtMemSharedHandleType shareType, int32_t *pid, size_t pidNum), since CANN 8.5."""
    def aclrtMemGetAllocationGranularity(self, prop: CData, option: int, granularity: CData) -> None:
        """aclError aclrtMemGetAllocationGranularity(aclrtPhysicalMemProp *prop, aclrtMemGranularityOptions option, size_t *granularity), since CANN 8.1."""
    def aclrtIpcMemGetExportKey(self, devPtr: Memory, size: int, key: CData, len: int, flags: int) -> None:
        """aclError aclrtIpcMemGetExportKey(void *devPtr, size_t size, char *key, size_t len, uint64_t flags), since CANN 8.5."""
    def aclrtIpcMemClose(self, key: bytes | CData) -> None:
        """aclError aclrtIpcMemClose(const char *key), since CANN 8.5."""
    def aclrtIpcMemImportByKey(self, devPtr: CData, key: bytes | CData, flags: int) -> None:
        """aclError aclrtIpcMemImportByKey(void **devPtr, const char *key, uint64_t flags), since CANN 8.5."""
    def aclrtIpcMemSetImportPid(self, key: bytes | CData, pid: CData, num: int) -> None:
        """aclError aclrtIpcMemSetImportPid(const char *key, int32_t *pid, size_t num), since CANN 8.5."""
    def aclrtIpcMemSetAttr(self, key: bytes | CData, type: int, attr: int) -> None:
        """aclError aclrtIpcMemSetAttr(const char *key, aclrtIpcMemAttrType type, uint64_t attr), since CANN 8.5."""
    def aclrtIpcMemImportPidInterServer(self, key: bytes | CData, serverPids: CData, num: int) -> None:
        """aclError aclrtIpcMemImportPidInterServer(const char *key, aclrtServerPid *serverPids, size_t num), since CANN 8.5."""
    def aclrtMemSetAccess(self, virPtr: Memory, size: int, desc: CData, count: int) -> None:
        """aclError aclrtMemSetAccess(void *virPtr, size_t size, aclrtMemAccessDesc *desc, size_t count), since CANN 8.5."""
    def aclrtMemGetAccess(self, virPtr: Memory, location: CData, flag: CData) -> None:
        """aclError aclrtMemGetAccess(void *virPtr, aclrtMemLocation *location, uint64_t *flag), since CANN 8.5."""
    def aclrtMemRetainAllocationHandle(self, virPtr: Memory, handle: CData) -> None:
        """aclError aclrtMemRetainAllocationHandle(void *virPtr, aclrtDrvMemHandle *handle), since CANN 8.5."""
    def aclrtMemGetAllocationPropertiesFromHandle(self, handle: CData, prop: CData) -> None:
        """aclError aclrtMemGetAllocationPropertiesFromHandle(aclrtDrvMemHandle handle, aclrtPhysicalMemProp *prop), since CANN 8.5."""
    def aclrtReserveMemAddressNoUCMemory(self, virPtr: CData, size: int, alignment: int, expectPtr: Memory, flags: int) -> None:
        """aclError aclrtReserveMemAddressNoUCMemory(void **virPtr, size_t size, size_t alignment, void *expectPtr, uint64_t flags), since CANN 9.0."""
    def aclrtMemGetAddressRange(self, ptr: Memory, pbase: CData, psize: CData) -> None:
        """aclError aclrtMemGetAddressRange(void *ptr, void **pbase, size_t *psize), since CANN 9.0."""
    def aclrtMemP2PMap(self, devPtr: Memory, size: int, dstDevId: int, flags: int) -> None:
        """aclError aclrtMemP2PMap(void *devPtr, size_t size, int32_t dstDevId, uint64_t flags), since CANN 9.0."""
    def aclrtMemManagedPrefetchBatchAsync(self, ptrs: CData, sizes: CData, count: int, prefetchLocs: CData, prefetchLocIdxs: CData, numPrefetchLocs: int, flags: int, stream: CData | Stream) -> None:
        """aclError aclrtMemManagedPrefetchBatchAsync(const void **ptrs, size_t *sizes, size_t count, aclrtMemManagedLocation *prefetchLocs, size_t *prefetchLocIdxs, size_t numPrefetchLocs, uint64_t flags, aclrtStream stream), since CANN 9.1."""
    def aclrtMemMapSelectedLink(self, virPtrDst: Memory, size: int, virPtrSrc: Memory, linkIdx: int) -> None:
        """aclError aclrtMemMapSelectedLink(void *virPtrDst, size_t size, void *virPtrSrc, uint32_t linkIdx), since CANN 9.1."""
    def aclrtMemMapSetLink(self, handle: CData, adviceLink: int) -> None:
        """aclError aclrtMemMapSetLink(aclrtDrvMemHandle handle, aclrtMemLinkType adviceLink), since CANN master."""
    def aclrtMemPoolCreate(self, memPool: CData, poolProps: CData) -> None:
        """aclError aclrtMemPoolCreate(aclrtMemPool *memPool, const aclrtMemPoolProps *poolProps), since CANN 9.0."""
    def aclrtMemPoolDestroy(self, memPool: CData) -> None:
        """aclError aclrtMemPoolDestroy(const aclrtMemPool memPool), since CANN 9.0."""
    def aclrtMemPoolSetAttr(self, memPool: CData, attr: int, value: Memory) -> None:
        """aclError aclrtMemPoolSetAttr(aclrtMemPool memPool, aclrtMemPoolAttr attr, void *value), since CANN 9.0."""
    def aclrtMemPoolGetAttr(self, memPool: CData, attr: int, value: Memory) -> None:
        """aclError aclrtMemPoolGetAttr(aclrtMemPool memPool, aclrtMemPoolAttr attr, void *value), since CANN 9.0."""
    def aclrtMemPoolMallocAsync(self, ptr: CData, size: int, memPool: CData, stream: CData | Stream) -> None:
        """aclError aclrtMemPoolMallocAsync(void **ptr, size_t size, aclrtMemPool memPool, aclrtStream stream), since CANN 9.1."""
    def aclrtMemPoolFreeAsync(self, ptr: Memory, stream: CData | Stream) -> None:
        """aclError aclrtMemPoolFreeAsync(void *ptr, aclrtStream stream), since CANN 9.1."""
    def aclrtMemPoolTrimTo(self, memPool: CData, minBytesToKeep: int) -> None:
        """aclError aclrtMemPoolTrimTo(aclrtMemPool memPool, size_t minBytesToKeep), since CANN 9.1."""
    def aclrtBinarySetExceptionCallback(self, binHandle: CData, callback: CData, userData: Memory) -> None:
        """aclError aclrtBinarySetExceptionCallback(aclrtBinHandle binHandle, aclrtOpExceptionCallback callback, void *userData), since CANN 9.0."""
    def aclrtGetSymbolAddress(self, symbol: bytes | Memory, devPtr: CData) -> None:
        """aclError aclrtGetSymbolAddress(const void *symbol, void **devPtr), since CANN 9.1."""
    def aclrtGetSymbolSize(self, symbol: bytes | Memory, size: CData) -> None:
        """aclError aclrtGetSymbolSize(const void *symbol, size_t *size), since CANN 9.1."""
    def aclrtMemcpyFromSymbol(self, dst: Memory, dstMax: int, symbol: bytes | Memory, count: int, offset: int, kind: int) -> None:
        """aclError aclrtMemcpyFromSymbol(void *dst, size_t dstMax, const void *symbol, size_t count, size_t offset, aclrtMemcpyKind kind), since CANN 9.1."""
    def aclrtMemcpyFromSymbolAsync(self, dst: Memory, dstMax: int, symbol: bytes | Memory, count: int, offset: int, kind: int, stream: CData | Stream) -> None:
        """aclError aclrtMemcpyFromSymbolAsync(void *dst, size_t dstMax, const void *symbol, size_t count, size_t offset, aclrtMemcpyKind kind, aclrtStream stream), since CANN 9.1."""
    def aclrtMemcpyToSymbol(self, symbol: bytes | Memory, src: bytes | Memory, count: int, offset: int, kind: int) -> None:
        """aclError aclrtMemcpyToSymbol(const void *symbol, const void *src, size_t count, size_t offset, aclrtMemcpyKind kind), since CANN 9.1."""
    def aclrtMemcpyToSymbolAsync(self, symbol: bytes | Memory, src: bytes | Memory, count: int, offset: int, kind: int, stream: CData | Stream) -> None:
        """aclError aclrtMemcpyToSymbolAsync(const void *symbol, const void *src, size_t count, size_t offset, aclrtMemcpyKind kind, aclrtStream stream), since CANN 9.1."""
    def aclrtCreateBinary(self, data: bytes | Memory, dataLen: int) -> CData:
        """aclrtBinary aclrtCreateBinary(const void *data, size_t dataLen), since CANN 8.1."""
    def aclrtDestroyBinary(self, binary: CData) -> None:
        """aclError aclrtDestroyBinary(aclrtBinary binary), since CANN 8.1."""
    def aclrtBinaryLoad(self, binary: CData, binHandle: CData) -> None:
        """aclError aclrtBinaryLoad(const aclrtBinary binary, aclrtBinHandle *binHandle), since CANN 8.1."""
    def aclrtBinaryUnLoad(self, binHandle: CData) -> None:
        """aclError aclrtBinaryUnLoad(aclrtBinHandle binHandle), since CANN 8.1."""
    def aclrtBinaryGetFunction(self, binHandle: CData, kernelName: bytes | CData, funcHandle: CData) -> None:
        """aclError aclrtBinaryGetFunction(const aclrtBinHandle binHandle, const char *kernelName, aclrtFuncHandle *funcHandle), since CANN 8.1."""
    def aclrtLaunchKernel(self, funcHandle: CData, numBlocks: int, argsData: bytes | Memory, argsSize: int, stream: CData | Stream) -> None:
        """aclError aclrtLaunchKernel(aclrtFuncHandle funcHandle, uint32_t numBlocks, const void *argsData, size_t argsSize, aclrtStream stream), since CANN 8.1."""
    def aclrtCmoAsync(self, src: Memory, size: int, cmoType: int, stream: CData | Stream) -> None:
        """aclError aclrtCmoAsync(void *src, size_t size, aclrtCmoType cmoType, aclrtStream stream), since CANN 8.1."""
    def aclrtBinaryLoadFromFile(self, binPath: bytes | CData, options: CData, binHandle: CData) -> None:
        """aclError aclrtBinaryLoadFromFile(const char *binPath, aclrtBinaryLoadOptions *options, aclrtBinHandle *binHandle), since CANN 8.1."""
    def aclrtBinaryGetDevAddress(self, binHandle: CData, binAddr: CData, binSize: CData) -> None:
        """aclError aclrtBinaryGetDevAddress(const aclrtBinHandle binHandle, void **binAddr, size_t *binSize), since CANN 8.5."""
    def aclrtBinaryGetFunctionByEntry(self, binHandle: CData, funcEntry: int, funcHandle: CData) -> None:
        """aclError aclrtBinaryGetFunctionByEntry(aclrtBinHandle binHandle, uint64_t funcEntry, aclrtFuncHandle *funcHandle), since CANN 8.1."""
    def aclrtBinaryGetGlobal(self, binHandle: CData, name: bytes | CData, dptr: CData, size: CData) -> None:
        """aclError aclrtBinaryGetGlobal(aclrtBinHandle binHandle, const char *name, void **dptr, size_t *size), since CANN 9.1."""
    def aclrtGetFuncBySymbol(self, symbol: bytes | Memory, funcHandle: CData) -> None:
        """aclError aclrtGetFuncBySymbol(const void *symbol, aclrtFuncHandle *funcHandle), since CANN 9.1."""
    def aclrtGetFunctionAddr(self, funcHandle: CData, aicAddr: CData, aivAddr: CData) -> None:
        """aclError aclrtGetFunctionAddr(aclrtFuncHandle funcHandle, void **aicAddr, void **aivAddr), since CANN 8.1."""
    def aclrtGetFunctionSize(self, funcHandle: CData, aicSize: CData, aivSize: CData) -> None:
        """aclError aclrtGetFunctionSize(aclrtFuncHandle funcHandle, size_t *aicSize, size_t *aivSize), since CANN 9.1."""
    def aclrtKernelArgsGetHandleMemSize(self, funcHandle: CData, memSize: CData) -> None:
        """aclError aclrtKernelArgsGetHandleMemSize(aclrtFuncHandle funcHandle, size_t *memSize), since CANN 8.1."""
    def aclrtKernelArgsGetMemSize(self, funcHandle: CData, userArgsSize: int, actualArgsSize: CData) -> None:
        """aclError aclrtKernelArgsGetMemSize(aclrtFuncHandle funcHandle, size_t userArgsSize, size_t *actualArgsSize), since CANN 8.1."""
    def aclrtKernelArgsInit(self, funcHandle: CData, argsHandle: CData) -> None:
        """aclError aclrtKernelArgsInit(aclrtFuncHandle funcHandle, aclrtArgsHandle *argsHandle), since CANN 8.1."""
    def aclrtKernelArgsInitByUserMem(self, funcHandle: CData, argsHandle: CData, userHostMem: Memory, actualArgsSize: int) -> None:
        """aclError aclrtKernelArgsInitByUserMem(aclrtFuncHandle funcHandle, aclrtArgsHandle argsHandle, void *userHostMem, size_t actualArgsSize), since CANN 8.1."""
    def aclrtKernelArgsAppend(self, argsHandle: CData, param: Memory, paramSize: int, paramHandle: CData) -> None:
        """aclError aclrtKernelArgsAppend(aclrtArgsHandle argsHandle, void *param, size_t paramSize, aclrtParamHandle *paramHandle), since CANN 8.1."""
    def aclrtKernelArgsAppendPlaceHolder(self, argsHandle: CData, paramHandle: CData) -> None:
        """aclError aclrtKernelArgsAppendPlaceHolder(aclrtArgsHandle argsHandle, aclrtParamHandle *paramHandle), since CANN 8.1."""
    def aclrtKernelArgsGetPlaceHolderBuffer(self, argsHandle: CData, paramHandle: CData, dataSize: int, bufferAddr: CData) -> None:
        """aclError aclrtKernelArgsGetPlaceHolderBuffer(aclrtArgsHandle argsHandle, aclrtParamHandle paramHandle, size_t dataSize, void **bufferAddr), since CANN 8.1."""
    def aclrtKernelArgsParaUpdate(self, argsHandle: CData, paramHandle: CData, param: Memory, paramSize: int) -> None:
        """aclError aclrtKernelArgsParaUpdate(aclrtArgsHandle argsHandle, aclrtParamHandle paramHandle, void *param, size_t paramSize), since CANN 8.1."""
    def aclrtLaunchKernelWithConfig(self, funcHandle: CData, numBlocks: int, stream: CData | Stream, cfg: CData, argsHandle: CData, reserve: Memory) -> None:
        """aclError aclrtLaunchKernelWithConfig(aclrtFuncHandle funcHandle, uint32_t numBlocks, aclrtStream stream, aclrtLaunchKernelCfg *cfg, aclrtArgsHandle argsHandle, void *reserve), since CANN 8.1."""
    def aclrtKernelArgsFinalize(self, argsHandle: CData) -> None:
        """aclError aclrtKernelArgsFinalize(aclrtArgsHandle argsHandle), since CANN 8.1."""
    def aclrtValueWrite(self, devAddr: Memory, value: int, flag: int, stream: CData | Stream) -> None:
        """aclError aclrtValueWrite(void *devAddr, uint64_t value, uint32_t flag, aclrtStream stream), since CANN 8.5."""
    def aclrtValueWait(self, devAddr: Memory, value: int, flag: int, stream: CData | Stream) -> None:
        """aclError aclrtValueWait(void *devAddr, uint64_t value, uint32_t flag, aclrtStream stream), since CANN 8.5."""
    def aclrtReduceAsync(self, dst: Memory, src: bytes | Memory, count: int, kind: int, type: int, stream: CData | Stream, reserve: Memory) -> None:
        """aclError aclrtReduceAsync(void *dst, const void *src, uint64_t count, aclrtReduceKind kind, aclDataType type, aclrtStream stream, void *reserve), since CANN 8.5."""
    def aclrtGetFunctionName(self, funcHandle: CData, maxLen: int, name: CData) -> None:
        """aclError aclrtGetFunctionName(aclrtFuncHandle funcHandle, uint32_t maxLen, char *name), since CANN 8.5."""
    def aclrtBinaryLoadFromData(self, data: bytes | Memory, length: int, options: CData, binHandle: CData) -> None:
        """aclError aclrtBinaryLoadFromData(const void *data, size_t length, const aclrtBinaryLoadOptions *options, aclrtBinHandle *binHandle), since CANN 8.5."""
    def aclrtRegisterCpuFunc(self, handle: CData, funcName: bytes | CData, kernelName: bytes | CData, funcHandle: CData) -> None:
        """aclError aclrtRegisterCpuFunc(const aclrtBinHandle handle, const char *funcName, const char *kernelName, aclrtFuncHandle *funcHandle), since CANN 8.5."""
    def aclrtCmoAsyncWithBarrier(self, src: Memory, size: int, cmoType: int, barrierId: int, stream: CData | Stream) -> None:
        """aclError aclrtCmoAsyncWithBarrier(void *src, size_t size, aclrtCmoType cmoType, uint32_t barrierId, aclrtStream stream), since CANN 8.5."""
    def aclrtCmoWaitBarrier(self, taskInfo: CData, stream: CData | Stream, flag: int) -> None:
        """aclError aclrtCmoWaitBarrier(aclrtBarrierTaskInfo *taskInfo, aclrtStream stream, uint32_t flag), since CANN 8.5."""
    def aclrtProfTrace(self, userdata: Memory, length: int, stream: CData | Stream) -> None:
        """aclError aclrtProfTrace(void *userdata, int32_t length, aclrtStream stream), since CANN 8.5."""
    def aclrtLaunchKernelV2(self, funcHandle: CData, numBlocks: int, argsData: bytes | Memory, argsSize: int, cfg: CData, stream: CData | Stream) -> None:
        """aclError aclrtLaunchKernelV2(aclrtFuncHandle funcHandle, uint32_t numBlocks, const void *argsData, size_t argsSize, aclrtLaunchKernelCfg *cfg, aclrtStream stream), since CANN 8.5."""
    def aclrtLaunchKernelWithHostArgs(self, funcHandle: CData, numBlocks: int, stream: CData | Stream, cfg: CData, hostArgs: Memory, argsSize: int, placeHolderArray: CData, placeHolderNum: int) -> None:
        """aclError aclrtLaunchKernelWithHostArgs(aclrtFuncHandle funcHandle, uint32_t numBlocks, aclrtStream stream, aclrtLaunchKernelCfg *cfg, void *hostArgs, size_t argsSize, aclrtPlaceHolderInfo *placeHolderArray, size_t placeHolderNum), since CANN 8.5."""
    def aclrtLaunchKernelWithArgsArray(self, func: Memory, numBlocks: int, stream: CData | Stream, cfg: CData, args: CData) -> None:
        """aclError aclrtLaunchKernelWithArgsArray(void *func, uint32_t numBlocks, aclrtStream stream, aclrtLaunchKernelCfg *cfg, void **args), since CANN 9.1."""
    def aclrtGetHardwareSyncAddr(self, addr: CData) -> None:
        """aclError aclrtGetHardwareSyncAddr(void **addr), since CANN 8.5."""
    def aclrtRandomNumAsync(self, taskInfo: CData, stream: CData | Stream, reserve: Memory) -> None:
        """aclError aclrtRandomNumAsync(const aclrtRandomNumTaskInfo *taskInfo, const aclrtStream stream, void *reserve), since CANN 8.5."""
    def aclrtCmoGetDescSize(self, size: CData) -> None:
        """aclError aclrtCmoGetDescSize(size_t *size), since CANN 8.5."""
    def aclrtCmoSetDesc(self, cmoDesc: Memory, src: Memory, size: int) -> None:
        """aclError aclrtCmoSetDesc(void *cmoDesc, void *src, size_t size), since CANN 8.5."""
    def aclrtCmoAsyncWithDesc(self, cmoDesc: Memory, cmoType: int, stream: CData | Stream, reserve: bytes | Memory) -> None:
        """aclError aclrtCmoAsyncWithDesc(void *cmoDesc, aclrtCmoType cmoType, aclrtStream stream, const void *reserve), since CANN 8.5."""
    def aclrtPersistentTaskClean(self, stream: CData | Stream) -> None:
        """aclError aclrtPersistentTaskClean(aclrtStream stream), since CANN 8.5."""
    def aclrtCacheLastTaskOpInfo(self, infoPtr: bytes | Memory, infoSize: int) -> None:
        """aclError aclrtCacheLastTaskOpInfo(const void *const infoPtr, const size_t infoSize), since CANN 8.5."""
    def aclrtCacheLastTaskExtendInfo(self, extendInfoPtr: bytes | CData, infoSize: int) -> None:
        """aclError aclrtCacheLastTaskExtendInfo(const char *const extendInfoPtr, const size_t infoSize), since CANN 9.1."""
    def aclrtGetFunctionAttribute(self, funcHandle: CData, attrType: int, attrValue: CData) -> None:
        """aclError aclrtGetFunctionAttribute(aclrtFuncHandle funcHandle, aclrtFuncAttribute attrType, int64_t *attrValue), since CANN 8.5."""
    def aclrtFunctionGetBinary(self, funcHandle: CData, binHandle: CData) -> None:
        """aclError aclrtFunctionGetBinary(const aclrtFuncHandle funcHandle, aclrtBinHandle *binHandle), since CANN 9.1."""
    def aclrtFunctionGetParamCount(self, func: bytes | Memory, paramCount: CData) -> None:
        """aclError aclrtFunctionGetParamCount(const void *func, size_t *paramCount), since CANN 9.1."""
    def aclrtFunctionGetParamInfo(self, func: bytes | Memory, paramIndex: int, paramOffset: CData, paramSize: CData) -> None:
        """aclError aclrtFunctionGetParamInfo(const void *func, size_t paramIndex, size_t *paramOffset, size_t *paramSize), since CANN 9.1."""
    def aclrtFunctionGetAvailDynUbufPerBlock(self, func: Memory, flags: int, dynamicUbufSize: CData) -> None:
        """aclError aclrtFunctionGetAvailDynUbufPerBlock(void *func, uint32_t flags, size_t *dynamicUbufSize), since CANN 9.1."""
    def aclmdlRITaskGetParams(self, task: CData, params: CData) -> None:
        """aclError aclmdlRITaskGetParams(aclmdlRITask task, aclmdlRITaskParams *params), since CANN 9.1."""
    def aclmdlRITaskSetParams(self, task: CData, params: CData) -> None:
        """aclError aclmdlRITaskSetParams(aclmdlRITask task, aclmdlRITaskParams *params), since CANN 9.1."""
    def aclmdlRIKernelTaskGetAttribute(self, task: CData, attrId: int, attrValue: CData) -> None:
        """aclError aclmdlRIKernelTaskGetAttribute(aclmdlRITask task, aclrtLaunchKernelAttrId attrId, aclrtLaunchKernelAttrValue *attrValue), since CANN 9.1."""
    def aclmdlRIUpdate(self, modelRI: CData) -> None:
        """aclError aclmdlRIUpdate(aclmdlRI modelRI), since CANN 9.1."""
    def aclmdlRITaskDisable(self, task: CData) -> None:
        """aclError aclmdlRITaskDisable(aclmdlRITask task), since CANN 9.1."""
    def aclrtCreateLabel(self, label: CData) -> None:
        """aclError aclrtCreateLabel(aclrtLabel *label), since CANN 8.5."""
    def aclrtSetLabel(self, label: CData, stream: CData | Stream) -> None:
        """aclError aclrtSetLabel(aclrtLabel label, aclrtStream stream), since CANN 8.5."""
    def aclrtDestroyLabel(self, label: CData) -> None:
        """aclError aclrtDestroyLabel(aclrtLabel label), since CANN 8.5."""
    def aclrtCreateLabelList(self, labels: CData, num: int, labelList: CData) -> None:
        """aclError aclrtCreateLabelList(aclrtLabel *labels, size_t num, aclrtLabelList *labelList), since CANN 8.5."""
    def aclrtDestroyLabelList(self, labelList: CData) -> None:
        """aclError aclrtDestroyLabelList(aclrtLabelList labelList), since CANN 8.5."""
    def aclrtSwitchLabelByIndex(self, ptr: Memory, maxValue: int, labelList: CData, stream: CData | Stream) -> None:
        """aclError aclrtSwitchLabelByIndex(void *ptr, uint32_t maxValue, aclrtLabelList labelList, aclrtStream stream), since CANN 8.5."""
    def aclrtActiveStream(self, activeStream: CData | Stream, stream: CData | Stream) -> None:
        """aclError aclrtActiveStream(aclrtStream activeStream, aclrtStream stream), since CANN 8.5."""
    def aclrtSwitchStream(self, leftValue: Memory, cond: int, rightValue: Memory, dataType: int, trueStream: CData | Stream, falseStream: CData | Stream, stream: CData | Stream) -> None:
        """aclError aclrtSwitchStream(void *leftValue, aclrtCondition cond, void *rightValue, aclrtCompareDataType dataType, aclrtStream trueStream, aclrtStream falseStream, aclrtStream stream), since CANN 8.5."""
    def aclmdlRICaptureBegin(self, stream: CData | Stream, mode: int) -> None:
        """aclError aclmdlRICaptureBegin(aclrtStream stream, aclmdlRICaptureMode mode), since CANN 8.1."""
    def aclmdlRICaptureGetInfo(self, stream: CData | Stream, status: CData, modelRI: CData) -> None:
        """aclError aclmdlRICaptureGetInfo(aclrtStream stream, aclmdlRICaptureStatus *status, aclmdlRI *modelRI), since CANN 8.1."""
    def aclmdlRICaptureEnd(self, stream: CData | Stream, modelRI: CData) -> None:
        """aclError aclmdlRICaptureEnd(aclrtStream stream, aclmdlRI *modelRI), since CANN 8.1."""
    def aclmdlRIDebugPrint(self, modelRI: CData) -> None:
        """aclError aclmdlRIDebugPrint(aclmdlRI modelRI), since CANN 8.1."""
    def aclmdlRIDebugJsonPrint(self, modelRI: CData, path: bytes | CData, flags: int) -> None:
        """aclError aclmdlRIDebugJsonPrint(aclmdlRI modelRI, const char *path, uint32_t flags), since CANN 8.5."""
    def aclmdlRICaptureThreadExchangeMode(self, mode: CData) -> None:
        """aclError aclmdlRICaptureThreadExchangeMode(aclmdlRICaptureMode *mode), since CANN 8.1."""
    def aclmdlRIExecuteAsync(self, modelRI: CData, stream: CData | Stream) -> None:
        """aclError aclmdlRIExecuteAsync(aclmdlRI modelRI, aclrtStream stream), since CANN 8.1."""
    def aclmdlRIExecute(self, modelRI: CData, timeout: int) -> None:
        """aclError aclmdlRIExecute(aclmdlRI modelRI, int32_t timeout), since CANN 8.5."""
    def aclmdlRIDestroy(self, modelRI: CData) -> None:
        """aclError aclmdlRIDestroy(aclmdlRI modelRI), since CANN 8.1."""
    def aclmdlRICaptureTaskGrpBegin(self, stream: CData | Stream) -> None:
        """aclError aclmdlRICaptureTaskGrpBegin(aclrtStream stream), since CANN 8.1."""
    def aclmdlRICaptureTaskGrpEnd(self, stream: CData | Stream, handle: CData) -> None:
        """aclError aclmdlRICaptureTaskGrpEnd(aclrtStream stream, aclrtTaskGrp *handle), since CANN 8.1."""
    def aclmdlRICaptureTaskUpdateBegin(self, stream: CData | Stream, handle: CData) -> None:
        """aclError aclmdlRICaptureTaskUpdateBegin(aclrtStream stream, aclrtTaskGrp handle), since CANN 8.1."""
    def aclmdlRICaptureTaskUpdateEnd(self, stream: CData | Stream) -> None:
        """aclError aclmdlRICaptureTaskUpdateEnd(aclrtStream stream), since CANN 8.1."""
    def aclmdlRIBuildBegin(self, modelRI: CData, flag: int) -> None:
        """aclError aclmdlRIBuildBegin(aclmdlRI *modelRI, uint32_t flag), since CANN 8.5."""
    def aclmdlRIBindStream(self, modelRI: CData, stream: CData | Stream, flag: int) -> None:
        """aclError aclmdlRIBindStream(aclmdlRI modelRI, aclrtStream stream, uint32_t flag), since CANN 8.5."""
    def aclmdlRIEndTask(self, modelRI: CData, stream: CData | Stream) -> None:
        """aclError aclmdlRIEndTask(aclmdlRI modelRI, aclrtStream stream), since CANN 8.5."""
    def aclmdlRIBuildEnd(self, modelRI: CData, reserve: Memory) -> None:
        """aclError aclmdlRIBuildEnd(aclmdlRI modelRI, void *reserve), since CANN 8.5."""
    def aclmdlRIUnbindStream(self, modelRI: CData, stream: CData | Stream) -> None:
        """aclError aclmdlRIUnbindStream(aclmdlRI modelRI, aclrtStream stream), since CANN 8.5."""
    def aclmdlRISetName(self, modelRI: CData, name: bytes | CData) -> None:
        """aclError aclmdlRISetName(aclmdlRI modelRI, const char *name), since CANN 8.5."""
    def aclmdlRIGetName(self, modelRI: CData, maxLen: int, name: CData) -> None:
        """aclError aclmdlRIGetName(aclmdlRI modelRI, uint32_t maxLen, char *name), since CANN 8.5."""
    def aclmdlRIGetId(self, modelRI: CData, modelRIId: CData) -> None:
        """aclError aclmdlRIGetId(aclmdlRI modelRI, uint32_t *modelRIId), since CANN 9.1."""
    def aclmdlRIDestroyRegisterCallback(self, modelRI: CData, func: CData, userData: Memory) -> None:
        """aclError aclmdlRIDestroyRegisterCallback(aclmdlRI modelRI, aclrtCallback func, void *userData), since CANN 9.0."""
    def aclmdlRIDestroyUnregisterCallback(self, modelRI: CData, func: CData) -> None:
        """aclError aclmdlRIDestroyUnregisterCallback(aclmdlRI modelRI, aclrtCallback func), since CANN 9.0."""
    def aclmdlRIGetStreams(self, modelRI: CData, streams: CData, numStreams: CData) -> None:
        """aclError aclmdlRIGetStreams(aclmdlRI modelRI, aclrtStream *streams, uint32_t *numStreams), since CANN 9.1."""
    def aclmdlRIGetTasksByStream(self, stream: CData | Stream, tasks: CData, numTasks: CData) -> None:
        """aclError aclmdlRIGetTasksByStream(aclrtStream stream, aclmdlRITask *tasks, uint32_t *numTasks), since CANN 9.1."""
    def aclmdlRITaskGetType(self, task: CData, type: CData) -> None:
        """aclError aclmdlRITaskGetType(aclmdlRITask task, aclmdlRITaskType *type), since CANN 9.1."""
    def aclmdlRITaskGetSeqId(self, task: CData, id: CData) -> None:
        """aclError aclmdlRITaskGetSeqId(aclmdlRITask task, uint32_t *id), since CANN 9.1."""
    def aclrtTaskUpdateAsync(self, taskStream: CData | Stream, taskId: int, info: CData, execStream: CData | Stream) -> None:
        """aclError aclrtTaskUpdateAsync(aclrtStream taskStream, uint32_t taskId, aclrtTaskUpdateInfo *info, aclrtStream execStream), since CANN 8.5."""
    def aclmdlRIAbort(self, modelRI: CData) -> None:
        """aclError aclmdlRIAbort(aclmdlRI modelRI), since CANN 8.5."""
    def aclmdlRICondHandleCreate(self, modelRI: CData, defaultLaunchValue: int, flag: int, handle: CData) -> None:
        """aclError aclmdlRICondHandleCreate(aclmdlRI modelRI, uint32_t defaultLaunchValue, aclmdlRICondHandleFlag flag, aclmdlRICondHandle *handle), since CANN 9.1."""
    def aclmdlRICondHandleGetCondPtr(self, handle: CData, ptr: CData) -> None:
        """aclError aclmdlRICondHandleGetCondPtr(aclmdlRICondHandle handle, uint64_t **ptr), since CANN 9.1."""
    def aclmdlRICaptureToModelRIBegin(self, stream: CData | Stream, modelRI: CData, mode: int) -> None:
        """aclError aclmdlRICaptureToModelRIBegin(aclrtStream stream, aclmdlRI modelRI, aclmdlRICaptureMode mode), since CANN 9.1."""
    def aclmdlCreateDesc(self) -> CData:
        """aclmdlDesc * aclmdlCreateDesc(void), since CANN 8.1."""
    def aclmdlDestroyDesc(self, modelDesc: CData) -> None:
        """aclError aclmdlDestroyDesc(aclmdlDesc *modelDesc), since CANN 8.1."""
    def aclmdlGetDesc(self, modelDesc: CData, modelId: int) -> None:
        """aclError aclmdlGetDesc(aclmdlDesc *modelDesc, uint32_t modelId), since CANN 8.1."""
    def aclmdlGetDescFromFile(self, modelDesc: CData, modelPath: bytes | CData) -> None:
        """aclError aclmdlGetDescFromFile(aclmdlDesc *modelDesc, const char *modelPath), since CANN 8.1."""
    def aclmdlGetDescFromMem(self, modelDesc: CData, model: bytes | Memory, modelSize: int) -> None:
        """aclError aclmdlGetDescFromMem(aclmdlDesc *modelDesc, const void *model, size_t modelSize), since CANN 8.1."""
    def aclmdlGetNumInputs(self, modelDesc: CData) -> int:
        """size_t aclmdlGetNumInputs(aclmdlDesc *modelDesc), since CANN 8.1."""
    def aclmdlGetNumOutputs(self, modelDesc: CData) -> int:
        """size_t aclmdlGetNumOutputs(aclmdlDesc *modelDesc), since CANN 8.1."""
    def aclmdlGetInputSizeByIndex(self, modelDesc: CData, index: int) -> int:
        """size_t aclmdlGetInputSizeByIndex(aclmdlDesc *modelDesc, size_t index), since CANN 8.1."""
    def aclmdlGetOutputSizeByIndex(self, modelDesc: CData, index: int) -> int:
        """size_t aclmdlGetOutputSizeByIndex(aclmdlDesc *modelDesc, size_t index), since CANN 8.1."""
    def aclmdlCreateExecConfigHandle(self) -> CData:
        """aclmdlExecConfigHandle * aclmdlCreateExecConfigHandle(void), since CANN 8.1."""
    def aclmdlDestroyExecConfigHandle(self, handle: CData) -> None:
        """aclError aclmdlDestroyExecConfigHandle(const aclmdlExecConfigHandle *handle), since CANN 8.1."""
    def aclmdlCreateDataset(self) -> CData:
        """aclmdlDataset * aclmdlCreateDataset(void), since CANN 8.1."""
    def aclmdlDestroyDataset(self, dataset: CData) -> None:
        """aclError aclmdlDestroyDataset(const aclmdlDataset *dataset), since CANN 8.1."""
    def aclmdlAddDatasetBuffer(self, dataset: CData, dataBuffer: CData) -> None:
        """aclError aclmdlAddDatasetBuffer(aclmdlDataset *dataset, aclDataBuffer *dataBuffer), since CANN 8.1."""
    def aclmdlSetDatasetTensorDesc(self, dataset: CData, tensorDesc: CData, index: int) -> None:
        """aclError aclmdlSetDatasetTensorDesc(aclmdlDataset *dataset, aclTensorDesc *tensorDesc, size_t index), since CANN 8.1."""
    def aclmdlGetDatasetTensorDesc(self, dataset: CData, index: int) -> CData:
        """aclTensorDesc * aclmdlGetDatasetTensorDesc(const aclmdlDataset *dataset, size_t index), since CANN 8.1."""
    def aclmdlGetDatasetNumBuffers(self, dataset: CData) -> int:
        """size_t aclmdlGetDatasetNumBuffers(const aclmdlDataset *dataset), since CANN 8.1."""
    def aclmdlGetDatasetBuffer(self, dataset: CData, index: int) -> CData:
        """aclDataBuffer * aclmdlGetDatasetBuffer(const aclmdlDataset *dataset, size_t index), since CANN 8.1."""
    def aclmdlLoadFromFile(self, modelPath: bytes | CData, modelId: CData) -> None:
        """aclError aclmdlLoadFromFile(const char *modelPath, uint32_t *modelId), since CANN 8.1."""
    def aclmdlBundleLoadFromFile(self, modelPath: bytes | CData, bundleId: CData) -> None:
        """aclError aclmdlBundleLoadFromFile(const char *modelPath, uint32_t *bundleId), since CANN 8.1."""
    def aclmdlBundleLoadFromMem(self, model: bytes | Memory, modelSize: int, bundleId: CData) -> None:
        """aclError aclmdlBundleLoadFromMem(const void *model, size_t modelSize, uint32_t *bundleId), since CANN 8.1."""
    def aclmdlBundleUnload(self, bundleId: int) -> None:
        """aclError aclmdlBundleUnload(uint32_t bundleId), since CANN 8.1."""
    def aclmdlBundleGetModelNum(self, bundleId: int, modelNum: CData) -> None:
        """aclError aclmdlBundleGetModelNum(uint32_t bundleId, size_t *modelNum), since CANN 8.1."""
    def aclmdlBundleGetModelId(self, bundleId: int, index: int, modelId: CData) -> None:
        """aclError aclmdlBundleGetModelId(uint32_t bundleId, size_t index, uint32_t *modelId), since CANN 8.1."""
    def aclmdlBundleCreateQueryInfo(self) -> CData:
        """aclmdlBundleQueryInfo * aclmdlBundleCreateQueryInfo(void), since CANN 9.0."""
    def aclmdlBundleDestroyQueryInfo(self, queryInfo: CData) -> None:
        """aclError aclmdlBundleDestroyQueryInfo(aclmdlBundleQueryInfo *queryInfo), since CANN 9.0."""
    def aclmdlBundleQueryInfoFromFile(self, fileName: bytes | CData, queryInfo: CData) -> None:
        """aclError aclmdlBundleQueryInfoFromFile(const char *fileName, aclmdlBundleQueryInfo *queryInfo), since CANN 9.0."""
    def aclmdlBundleQueryInfoFromMem(self, model: bytes | Memory, modelSize: int, queryInfo: CData) -> None:
        """aclError aclmdlBundleQueryInfoFromMem(const void *model, size_t modelSize, aclmdlBundleQueryInfo *queryInfo), since CANN 9.0."""
    def aclmdlBundleGetQueryModelNum(self, queryInfo: CData, modelNum: CData) -> None:
        """aclError aclmdlBundleGetQueryModelNum(const aclmdlBundleQueryInfo *queryInfo, size_t *modelNum), since CANN 9.0."""
    def aclmdlBundleGetVarWeightSize(self, queryInfo: CData, variableWeightSize: CData) -> None:
        """aclError aclmdlBundleGetVarWeightSize(const aclmdlBundleQueryInfo *queryInfo, size_t *variableWeightSize), since CANN 9.0."""
    def aclmdlBundleGetSize(self, queryInfo: CData, index: int, workSize: CData, constWeightSize: CData) -> None:
        """aclError aclmdlBundleGetSize(const aclmdlBundleQueryInfo *queryInfo, size_t index, size_t *workSize, size_t *constWeightSize), since CANN 9.0."""
    def aclmdlBundleInitFromFile(self, modelPath: bytes | CData, varWeightPtr: Memory, varWeightSize: int, bundleId: CData) -> None:
        """aclError aclmdlBundleInitFromFile(const char *modelPath, void *varWeightPtr, size_t varWeightSize, uint32_t *bundleId), since CANN 9.0."""
    def aclmdlBundleInitFromMem(self, model: bytes | Memory, modelSize: int, varWeightPtr: Memory, varWeightSize: int, bundleId: CData) -> None:
        """aclError aclmdlBundleInitFromMem(const void *model, size_t modelSize, void *varWeightPtr, size_t varWeightSize, uint32_t *bundleId), since CANN 9.0."""
    def aclmdlBundleLoadModel(self, bundleId: int, index: int, modelId: CData) -> None:
        """aclError aclmdlBundleLoadModel(uint32_t bundleId, size_t index, uint32_t *modelId), since CANN 9.0."""
    def aclmdlBundleLoadModelWithMem(self, bundleId: int, index: int, workPtr: Memory, workSize: int, weightPtr: Memory, weightSize: int, modelId: CData) -> None:
        """aclError aclmdlBundleLoadModelWithMem(uint32_t bundleId, size_t index, void *workPtr, size_t workSize, void *weightPtr, size_t weightSize, uint32_t *modelId), since CANN 9.0."""
    def aclmdlBundleLoadModelWithConfig(self, bundleId: int, index: int, handle: CData, modelId: CData) -> None:
        """aclError aclmdlBundleLoadModelWithConfig(uint32_t bundleId, size_t index, aclmdlConfigHandle *handle, uint32_t *modelId), since CANN 9.0."""
    def aclmdlBundleUnloadModel(self, bundleId: int, modelId: int) -> None:
        """aclError aclmdlBundleUnloadModel(uint32_t bundleId, uint32_t modelId), since CANN 9.0."""
    def aclmdlLoadFromMem(self, model: bytes | Memory, modelSize: int, modelId: CData) -> None:
        """aclError aclmdlLoadFromMem(const void *model, size_t modelSize, uint32_t *modelId), since CANN 8.1."""
    def aclmdlLoadFromFileWithMem(self, modelPath: bytes | CData, modelId: CData, workPtr: Memory, workSize: int, weightPtr: Memory, weightSize: int) -> None:
        """aclError aclmdlLoadFromFileWithMem(const char *modelPath, uint32_t *modelId, void *workPtr, size_t workSize, void *weightPtr, size_t weightSize), since CANN 8.1."""
    def aclmdlLoadFromMemWithMem(self, model: bytes | Memory, modelSize: int, modelId: CData, workPtr: Memory, workSize: int, weightPtr: Memory, weightSize: int) -> None:
        """aclError aclmdlLoadFromMemWithMem(const void *model, size_t modelSize, uint32_t *modelId, void *workPtr, size_t workSize, void *weightPtr, size_t weightSize), since CANN 8.1."""
    def aclmdlLoadFromFileWithQ(self, modelPath: bytes | CData, modelId: CData, inputQ: CData, inputQNum: int, outputQ: CData, outputQNum: int) -> None:
        """aclError aclmdlLoadFromFileWithQ(const char *modelPath, uint32_t *modelId, const uint32_t *inputQ, size_t inputQNum, const uint32_t *outputQ, size_t outputQNum), since CANN 8.1."""
    def aclmdlLoadFromMemWithQ(self, model: bytes | Memory, modelSize: int, modelId: CData, inputQ: CData, inputQNum: int, outputQ: CData, outputQNum: int) -> None:
        """aclError aclmdlLoadFromMemWithQ(const void *model, size_t modelSize, uint32_t *modelId, const uint32_t *inputQ, size_t inputQNum, const uint32_t *outputQ, size_t outputQNum), since CANN 8.1."""
    def aclmdlExecute(self, modelId: int, input: CData, output: CData) -> None:
        """aclError aclmdlExecute(uint32_t modelId, const aclmdlDataset *input, aclmdlDataset *output), since CANN 8.1."""
    def aclmdlExecuteV2(self, modelId: int, input: CData, output: CData, stream: CData | Stream, handle: CData) -> None:
        """aclError aclmdlExecuteV2(uint32_t modelId, const aclmdlDataset *input, aclmdlDataset *output, aclrtStream stream, const aclmdlExecConfigHandle *handle), since CANN 8.1."""
    def aclmdlExecuteAsyncV2(self, modelId: int, input: CData, output: CData, stream: CData | Stream, handle: CData) -> None:
        """aclError aclmdlExecuteAsyncV2(uint32_t modelId, const aclmdlDataset *input, aclmdlDataset *output, aclrtStream stream, const aclmdlExecConfigHandle *handle), since CANN 8.1."""
    def aclmdlExecuteAsync(self, modelId: int, input: CData, output: CData, stream: CData | Stream) -> None:
        """aclError aclmdlExecuteAsync(uint32_t modelId, const aclmdlDataset *input, aclmdlDataset *output, aclrtStream stream), since CANN 8.1."""
    def aclmdlUnload(self, modelId: int) -> None:
        """aclError aclmdlUnload(uint32_t modelId), since CANN 8.1."""
    def aclmdlSetAttribute(self, modelId: int, attr: int, attrValue: CData) -> None:
        """aclError aclmdlSetAttribute(uint32_t modelId, aclmdlAttr attr, aclmdlAttrValue_t *attrValue), since CANN 9.1."""
    def aclmdlGetAttribute(self, modelId: int, attr: int, attrValue: CData) -> None:
        """aclError aclmdlGetAttribute(uint32_t modelId, aclmdlAttr attr, aclmdlAttrValue_t *attrValue), since CANN 9.1."""
    def aclmdlQuerySize(self, fileName: bytes | CData, workSize: CData, weightSize: CData) -> None:
        """aclError aclmdlQuerySize(const char *fileName, size_t *workSize, size_t *weightSize), since CANN 8.1."""
    def aclmdlQueryExeOMDesc(self, fileName: bytes | CData, mdlPartitionSize: CData) -> None:
        """aclError aclmdlQueryExeOMDesc(const char *fileName, aclmdlExeOMDesc *mdlPartitionSize), since CANN 8.1."""
    def aclmdlQuerySizeFromMem(self, model: bytes | Memory, modelSize: int, workSize: CData, weightSize: CData) -> None:
        """aclError aclmdlQuerySizeFromMem(const void *model, size_t modelSize, size_t *workSize, size_t *weightSize), since CANN 8.1."""
    def aclmdlSetDynamicBatchSize(self, modelId: int, dataset: CData, index: int, batchSize: int) -> None:
        """aclError aclmdlSetDynamicBatchSize(uint32_t modelId, aclmdlDataset *dataset, size_t index, uint64_t batchSize), since CANN 8.1."""
    def aclmdlSetDynamicHWSize(self, modelId: int, dataset: CData, index: int, height: int, width: int) -> None:
        """aclError aclmdlSetDynamicHWSize(uint32_t modelId, aclmdlDataset *dataset, size_t index, uint64_t height, uint64_t width), since CANN 8.1."""
    def aclmdlSetInputDynamicDims(self, modelId: int, dataset: CData, index: int, dims: CData) -> None:
        """aclError aclmdlSetInputDynamicDims(uint32_t modelId, aclmdlDataset *dataset, size_t index, const aclmdlIODims *dims), since CANN 8.1."""
    def aclmdlGetInputDims(self, modelDesc: CData, index: int, dims: CData) -> None:
        """aclError aclmdlGetInputDims(const aclmdlDesc *modelDesc, size_t index, aclmdlIODims *dims), since CANN 8.1."""
    def aclmdlGetInputDimsV2(self, modelDesc: CData, index: int, dims: CData) -> None:
        """aclError aclmdlGetInputDimsV2(const aclmdlDesc *modelDesc, size_t index, aclmdlIODims *dims), since CANN 8.1."""
    def aclmdlGetInputDimsRange(self, modelDesc: CData, index: int, dimsRange: CData) -> None:
        """aclError aclmdlGetInputDimsRange(const aclmdlDesc *modelDesc, size_t index, aclmdlIODimsRange *dimsRange), since CANN 8.1."""
    def aclmdlGetOutputDims(self, modelDesc: CData, index: int, dims: CData) -> None:
        """aclError aclmdlGetOutputDims(const aclmdlDesc *modelDesc, size_t index, aclmdlIODims *dims), since CANN 8.1."""
    def aclmdlGetCurOutputDims(self, modelDesc: CData, index: int, dims: CData) -> None:
        """aclError aclmdlGetCurOutputDims(const aclmdlDesc *modelDesc, size_t index, aclmdlIODims *dims), since CANN 8.1."""
    def aclmdlGetOpAttr(self, modelDesc: CData, opName: bytes | CData, attr: bytes | CData) -> CData:
        """const char * aclmdlGetOpAttr(aclmdlDesc *modelDesc, const char *opName, const char *attr), since CANN 8.1."""
    def aclmdlGetInputNameByIndex(self, modelDesc: CData, index: int) -> CData:
        """const char * aclmdlGetInputNameByIndex(const aclmdlDesc *modelDesc, size_t index), since CANN 8.1."""
    def aclmdlGetOutputNameByIndex(self, modelDesc: CData, index: int) -> CData:
        """const char * aclmdlGetOutputNameByIndex(const aclmdlDesc *modelDesc, size_t index), since CANN 8.1."""
    def aclmdlGetInputFormat(self, modelDesc: CData, index: int) -> int:
        """aclFormat aclmdlGetInputFormat(const aclmdlDesc *modelDesc, size_t index), since CANN 8.1."""
    def aclmdlGetOutputFormat(self, modelDesc: CData, index: int) -> int:
        """aclFormat aclmdlGetOutputFormat(const aclmdlDesc *modelDesc, size_t index), since CANN 8.1."""
    def aclmdlGetInputDataType(self, modelDesc: CData, index: int) -> int:
        """aclDataType aclmdlGetInputDataType(const aclmdlDesc *modelDesc, size_t index), since CANN 8.1."""
    def aclmdlGetOutputDataType(self, modelDesc: CData, index: int) -> int:
        """aclDataType aclmdlGetOutputDataType(const aclmdlDesc *modelDesc, size_t index), since CANN 8.1."""
    def aclmdlGetInputIndexByName(self, modelDesc: CData, name: bytes | CData, index: CData) -> None:
        """aclError aclmdlGetInputIndexByName(const aclmdlDesc *modelDesc, const char *name, size_t *index), since CANN 8.1."""
    def aclmdlGetOutputIndexByName(self, modelDesc: CData, name: bytes | CData, index: CData) -> None:
        """aclError aclmdlGetOutputIndexByName(const aclmdlDesc *modelDesc, const char *name, size_t *index), since CANN 8.1."""
    def aclmdlGetDynamicBatch(self, modelDesc: CData, batch: CData) -> None:
        """aclError aclmdlGetDynamicBatch(const aclmdlDesc *modelDesc, aclmdlBatch *batch), since CANN 8.1."""
    def aclmdlGetDynamicHW(self, modelDesc: CData, index: int, hw: CData) -> None:
        """aclError aclmdlGetDynamicHW(const aclmdlDesc *modelDesc, size_t index, aclmdlHW *hw), since CANN 8.1."""
    def aclmdlGetInputDynamicGearCount(self, modelDesc: CData, index: int, gearCount: CData) -> None:
        """aclError aclmdlGetInputDynamicGearCount(const aclmdlDesc *modelDesc, size_t index, size_t *gearCount), since CANN 8.1."""
    def aclmdlGetInputDynamicDims(self, modelDesc: CData, index: int, dims: CData, gearCount: int) -> None:
        """aclError aclmdlGetInputDynamicDims(const aclmdlDesc *modelDesc, size_t index, aclmdlIODims *dims, size_t gearCount), since CANN 8.1."""
    def aclmdlCreateAIPP(self, batchSize: int) -> CData:
        """aclmdlAIPP * aclmdlCreateAIPP(uint64_t batchSize), since CANN 8.1."""
    def aclmdlDestroyAIPP(self, aippParmsSet: CData) -> None:
        """aclError aclmdlDestroyAIPP(const aclmdlAIPP *aippParmsSet), since CANN 8.1."""
    def aclmdlGetAippDataSize(self, batchSize: int, size: CData) -> None:
        """aclError aclmdlGetAippDataSize(uint64_t batchSize, size_t *size), since CANN 8.1."""
    def aclmdlSetAIPPInputFormat(self, aippParmsSet: CData, inputFormat: int) -> None:
        """aclError aclmdlSetAIPPInputFormat(aclmdlAIPP *aippParmsSet, aclAippInputFormat inputFormat), since CANN 8.1."""
    def aclmdlSetAIPPCscParams(self, aippParmsSet: CData, cscSwitch: int, cscMatrixR0C0: int, cscMatrixR0C1: int, cscMatrixR0C2: int, cscMatrixR1C0: int, cscMatrixR1C1: int, cscMatrixR1C2: int, cscMatrixR2C0: int, cscMatrixR2C1: int, cscMatrixR2C2: int, cscOutputBiasR0: int, cscOutputBiasR1: int, cscOutputBiasR2: int, cscInputBiasR0: int, cscInputBiasR1: int, cscInputBiasR2: int) -> None:
        """aclError aclmdlSetAIPPCscParams(aclmdlAIPP *aippParmsSet, int8_t cscSwitch, int16_t cscMatrixR0C0, int16_t cscMatrixR0C1, int16_t cscMatrixR0C2, int16_t cscMatrixR1C0, int16_t cscMatrixR1C1, int16_t cscMatrixR1C2, int16_t cscMatrixR2C0, int16_t cscMatrixR2C1, int16_t cscMatrixR2C2, uint8_t cscOutputBiasR0, uint8_t cscOutputBiasR1, uint8_t cscOutputBiasR2, uint8_t cscInputBiasR0, uint8_t cscInputBiasR1, uint8_t cscInputBiasR2), since CANN 8.1."""
    def aclmdlSetAIPPRbuvSwapSwitch(self, aippParmsSet: CData, rbuvSwapSwitch: int) -> None:
        """aclError aclmdlSetAIPPRbuvSwapSwitch(aclmdlAIPP *aippParmsSet, int8_t rbuvSwapSwitch), since CANN 8.1."""
    def aclmdlSetAIPPAxSwapSwitch(self, aippParmsSet: CData, axSwapSwitch: int) -> None:
        """aclError aclmdlSetAIPPAxSwapSwitch(aclmdlAIPP *aippParmsSet, int8_t axSwapSwitch), since CANN 8.1."""
    def aclmdlSetAIPPSrcImageSize(self, aippParmsSet: CData, srcImageSizeW: int, srcImageSizeH: int) -> None:
        """aclError aclmdlSetAIPPSrcImageSize(aclmdlAIPP *aippParmsSet, int32_t srcImageSizeW, int32_t srcImageSizeH), since CANN 8.1."""
    def aclmdlSetAIPPScfParams(self, aippParmsSet: CData, scfSwitch: int, scfInputSizeW: int, scfInputSizeH: int, scfOutputSizeW: int, scfOutputSizeH: int, batchIndex: int) -> None:
        """aclError aclmdlSetAIPPScfParams(aclmdlAIPP *aippParmsSet, int8_t scfSwitch, int32_t scfInputSizeW, int32_t scfInputSizeH, int32_t scfOutputSizeW, int32_t scfOutputSizeH, uint64_t batchIndex), since CANN 8.1."""
    def aclmdlSetAIPPCropParams(self, aippParmsSet: CData, cropSwitch: int, cropStartPosW: int, cropStartPosH: int, cropSizeW: int, cropSizeH: int, batchIndex: int) -> None:
        """aclError aclmdlSetAIPPCropParams(aclmdlAIPP *aippParmsSet, int8_t cropSwitch, int32_t cropStartPosW, int32_t cropStartPosH, int32_t cropSizeW, int32_t cropSizeH, uint64_t batchIndex), since CANN 8.1."""
    def aclmdlSetAIPPPaddingParams(self, aippParmsSet: CData, paddingSwitch: int, paddingSizeTop: int, paddingSizeBottom: int, paddingSizeLeft: int, paddingSizeRight: int, batchIndex: int) -> None:
        """aclError aclmdlSetAIPPPaddingParams(aclmdlAIPP *aippParmsSet, int8_t paddingSwitch, int32_t paddingSizeTop, int32_t paddingSizeBottom, int32_t paddingSizeLeft, int32_t paddingSizeRight, uint64_t batchIndex), since CANN 8.1."""
    def aclmdlSetAIPPDtcPixelMean(self, aippParmsSet: CData, dtcPixelMeanChn0: int, dtcPixelMeanChn1: int, dtcPixelMeanChn2: int, dtcPixelMeanChn3: int, batchIndex: int) -> None:
        """aclError aclmdlSetAIPPDtcPixelMean(aclmdlAIPP *aippParmsSet, int16_t dtcPixelMeanChn0, int16_t dtcPixelMeanChn1, int16_t dtcPixelMeanChn2, int16_t dtcPixelMeanChn3, uint64_t batchIndex), since CANN 8.1."""
    def aclmdlSetAIPPDtcPixelMin(self, aippParmsSet: CData, dtcPixelMinChn0: float, dtcPixelMinChn1: float, dtcPixelMinChn2: float, dtcPixelMinChn3: float, batchIndex: int) -> None:
        """aclError aclmdlSetAIPPDtcPixelMin(aclmdlAIPP *aippParmsSet, float dtcPixelMinChn0, float dtcPixelMinChn1, float dtcPixelMinChn2, float dtcPixelMinChn3, uint64_t batchIndex), since CANN 8.1."""
    def aclmdlSetAIPPPixelVarReci(self, aippParmsSet: CData, dtcPixelVarReciChn0: float, dtcPixelVarReciChn1: float, dtcPixelVarReciChn2: float, dtcPixelVarReciChn3: float, batchIndex: int) -> None:
        """aclError aclmdlSetAIPPPixelVarReci(aclmdlAIPP *aippParmsSet, float dtcPixelVarReciChn0, float dtcPixelVarReciChn1, float dtcPixelVarReciChn2, float dtcPixelVarReciChn3, uint64_t batchIndex), since CANN 8.1."""
    def aclmdlSetInputAIPP(self, modelId: int, dataset: CData, index: int, aippParmsSet: CData) -> None:
        """aclError aclmdlSetInputAIPP(uint32_t modelId, aclmdlDataset *dataset, size_t index, const aclmdlAIPP *aippParmsSet), since CANN 8.1."""
    def aclmdlSetAIPPByInputIndex(self, modelId: int, dataset: CData, index: int, aippParmsSet: CData) -> None:
        """aclError aclmdlSetAIPPByInputIndex(uint32_t modelId, aclmdlDataset *dataset, size_t index, const aclmdlAIPP *aippParmsSet), since CANN 8.1."""
    def aclmdlGetAippType(self, modelId: int, index: int, type: CData, dynamicAttachedDataIndex: CData) -> None:
        """aclError aclmdlGetAippType(uint32_t modelId, size_t index, aclmdlInputAippType *type, size_t *dynamicAttachedDataIndex), since CANN 8.1."""
    def aclmdlGetFirstAippInfo(self, modelId: int, index: int, aippInfo: CData) -> None:
        """aclError aclmdlGetFirstAippInfo(uint32_t modelId, size_t index, aclAippInfo *aippInfo), since CANN 8.1."""
    def aclmdlCreateAndGetOpDesc(self, deviceId: int, streamId: int, taskId: int, opName: CData, opNameLen: int, inputDesc: CData, numInputs: CData, outputDesc: CData, numOutputs: CData) -> None:
        """aclError aclmdlCreateAndGetOpDesc(uint32_t deviceId, uint32_t streamId, uint32_t taskId, char *opName, size_t opNameLen, aclTensorDesc **inputDesc, size_t *numInputs, aclTensorDesc **outputDesc, size_t *numOutputs), since CANN 8.1."""
    def aclmdlLoadWithConfig(self, handle: CData, modelId: CData) -> None:
        """aclError aclmdlLoadWithConfig(const aclmdlConfigHandle *handle, uint32_t *modelId), since CANN 8.1."""
    def aclmdlCreateConfigHandle(self) -> CData:
        """aclmdlConfigHandle * aclmdlCreateConfigHandle(void), since CANN 8.1."""
    def aclmdlDestroyConfigHandle(self, handle: CData) -> None:
        """aclError aclmdlDestroyConfigHandle(aclmdlConfigHandle *handle), since CANN 8.1."""
    def aclmdlSetConfigOpt(self, handle: CData, attr: int, attrValue: bytes | Memory, valueSize: int) -> None:
        """aclError aclmdlSetConfigOpt(aclmdlConfigHandle *handle, aclmdlConfigAttr attr, const void *attrValue, size_t valueSize), since CANN 8.1."""
    def aclmdlSetExecConfigOpt(self, handle: CData, attr: int, attrValue: bytes | Memory, valueSize: int) -> None:
        """aclError aclmdlSetExecConfigOpt(aclmdlExecConfigHandle *handle, aclmdlExecConfigAttr attr, const void *attrValue, size_t valueSize), since CANN 8.1."""
    def aclmdlSetExternalWeightAddress(self, handle: CData, weightFileName: bytes | CData, devPtr: Memory, size: int) -> None:
        """aclError aclmdlSetExternalWeightAddress(aclmdlConfigHandle *handle, const char *weightFileName, void *devPtr, size_t size), since CANN 8.5."""
    def aclmdlGetTensorRealName(self, modelDesc: CData, name: bytes | CData) -> CData:
        """const char * aclmdlGetTensorRealName(const aclmdlDesc *modelDesc, const char *name), since CANN 8.1."""
    def aclRecoverAllHcclTasks(self, deviceId: int) -> None:
        """aclError aclRecoverAllHcclTasks(int32_t deviceId), since CANN 8.5."""
    def aclmdlLoadFromModel(self, model: CData, handle: CData, modelId: CData) -> None:
        """aclError aclmdlLoadFromModel(const aclmdlModel *model, const aclmdlConfigHandle *handle, uint32_t *modelId), since CANN 9.1."""
