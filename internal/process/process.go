// Package process tells whether a process of the same machine is gone.
//
// It proves a death or says nothing. A process is gone if the system has no process of its id, or if one that has this id began
// at another time. Whatever the system does not answer clearly counts as no proof.
package process

import "os"

// Self is what identifies this process among those of its machine, beside its id.
type Self struct {
	Boot      string // one start of one machine, or of clones of it
	Namespace string // where process ids and starts count, within the boot
	Started   int64  // in ticks since the boot
}

// Look returns what identifies this process. It is zero if the system does not tell.
func Look() Self { return look(os.Getpid()) }

// Gone reports whether it is proved that the process of this id that began at that tick has ended. The process must be of the
// caller's boot and namespace.
func Gone(pid int, started int64) bool { return pid > 0 && started > 0 && gone(pid, started) }
