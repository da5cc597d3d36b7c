package rig

import (
	"runtime"
	"sync"
	"testing"
)

// deployments limits how many tests of this process may run processes of their own at the same time. Each has up to
// four processes, so more of them would only wait for each other, and lose their leases.
var deployments = struct {
	sync.Mutex
	slots chan struct{}
	of    map[testing.TB]bool
}{slots: make(chan struct{}, max(2, runtime.NumCPU()/2)), of: make(map[testing.TB]bool)}

// Deploy waits until the test may start processes. Further calls of the same test return at once. The test may start
// any number of processes until it ends. They must end by functions that are given to t.Cleanup after this call.
func Deploy(t testing.TB) {
	t.Helper()
	deployments.Lock()
	deployed := deployments.of[t]
	deployments.of[t] = true
	deployments.Unlock()
	if deployed {
		return
	}
	deployments.slots <- struct{}{}
	t.Cleanup(func() {
		<-deployments.slots
		deployments.Lock()
		defer deployments.Unlock()
		delete(deployments.of, t)
	})
}
