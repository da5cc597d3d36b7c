// Package process detects that a process of the same machine has ended.
//
// A process has certainly ended if no process has its id, or if the process with this id was started at another time.
// If the system gives no clear answer, nothing is proved.
package process

import "os"

// Self identifies this process among those of its machine, together with its process id.
type Self struct {
	Boot      string // boot id of the machine; clones of a machine have the same
	Namespace string // namespaces in which process ids and start times are valid
	Started   int64  // start of the process, in clock ticks since the boot
}

// Look returns the identity of this process, or the zero value if the system does not report it.
func Look() Self { return look(os.Getpid()) }

// Gone reports whether the process with this id and start has certainly ended. The caller makes sure that the process
// has the same boot and namespace as the caller.
func Gone(pid int, started int64) bool { return pid > 0 && started > 0 && gone(pid, started) }
