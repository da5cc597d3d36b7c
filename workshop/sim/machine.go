package sim

import (
	"fmt"
	"slices"

	"github.com/holdfastq/holdfast/store"
)

const namespace = "namespace"

// boot returns the boot id of the machine of a process. All processes of a cloned plan have the same one.
func (p *Plan) boot(process int) string {
	if p.Cloned {
		return "clones"
	}
	return fmt.Sprint("machine ", p.machine(process))
}

// assignID gives a new process the lowest free process id of its machine. A restarted process therefore often gets the
// id of its predecessor. The caller holds w.mu.
func (w *world) assignID(p *process) {
	machine := w.plan.machine(p.index)
	if w.started == nil {
		w.started = make(map[int]int64)
	}
	w.started[machine]++
	for p.pid = 1; w.hasProcess(machine, p.pid); {
		p.pid++
	}
	p.identity = store.Process{Boot: w.plan.boot(p.index), Namespace: namespace, Started: w.started[machine]}
}

// hasProcess reports whether a machine has a live process with the given id.
func (w *world) hasProcess(machine, pid int) bool {
	return slices.ContainsFunc(w.processes, func(p *process) bool {
		return p != nil && !p.dead && w.plan.machine(p.index) == machine && p.pid == pid
	})
}

// Place implements presence.Machine.
func (p *process) Place() (boot, where string) { return p.identity.Boot, namespace }

// Gone implements presence.Machine. It knows only the processes of its own machine.
func (p *process) Gone(pid int, started int64) bool {
	w := p.world
	w.mu.Lock()
	defer w.mu.Unlock()
	machine := w.plan.machine(p.index)
	return !slices.ContainsFunc(w.processes, func(o *process) bool {
		return !o.dead && w.plan.machine(o.index) == machine && o.pid == pid && o.identity.Started == started
	})
}
