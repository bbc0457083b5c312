/* The controls of the library in place of onnxruntime. */
#ifndef STANDIN_H
#define STANDIN_H

#define STANDIN_HELD 1000.0F
#define STANDIN_BROKEN (-1.0F)

/* Runs whose input begins with STANDIN_HELD end from now on. */
void standin_release(void);
/* Later runs with such an input are held again. */
void standin_hold(void);
/* Waits until that many runs are held. */
void standin_until_held(int count);

#endif
