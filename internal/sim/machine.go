package sim

import (
	"fmt"
	"slices"

	"github.com/holdfastq/holdfast/store"
)

const namespace = "namespace"

// boot is that of the machine of a process. Clones share it.
func (p *Plan) boot(process int) string {
	if p.Cloned {
		return "clones"
	}
	return fmt.Sprint("machine ", p.machine(process))
}

// identify gives a new process the lowest id that is free on its machine, so that a process that is started again gets the id
// of the last one. The caller holds w.mu.
func (w *world) identify(p *process) {
	machine := w.plan.machine(p.index)
	if w.started == nil {
		w.started = make(map[int]int64)
	}
	w.started[machine]++
	for p.pid = 1; w.has(machine, p.pid); {
		p.pid++
	}
	p.identity = store.Process{Boot: w.plan.boot(p.index), Namespace: namespace, Started: w.started[machine]}
}

// has reports whether a machine has a process of that id.
func (w *world) has(machine, pid int) bool {
	return slices.ContainsFunc(w.processes, func(p *process) bool {
		return p != nil && !p.dead && w.plan.machine(p.index) == machine && p.pid == pid
	})
}

// Place implements presence.Machine.
func (p *process) Place() (boot, where string) { return p.identity.Boot, namespace }

// Gone implements presence.Machine: it is what the process's own machine knows.
func (p *process) Gone(pid int, started int64) bool {
	w := p.world
	w.mu.Lock()
	defer w.mu.Unlock()
	machine := w.plan.machine(p.index)
	return !slices.ContainsFunc(w.processes, func(o *process) bool {
		return !o.dead && w.plan.machine(o.index) == machine && o.pid == pid && o.identity.Started == started
	})
}
