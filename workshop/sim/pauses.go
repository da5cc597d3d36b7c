package sim

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/store"
)

// PausePlan is one pause by the person. A pause without an end is resumed after Resume. A pause with an end is resumed
// before its end, or ends by itself if Resume is 0.
type PausePlan struct {
	Name    string
	At      time.Duration // time since the start of the simulation
	Subject store.Subject
	For     time.Duration // the time limit that the person gives; 0 means none
	Resume  time.Duration // time since the answer to the pause; 0 means never
}

// String describes the pause for people.
func (g PausePlan) String() string {
	text := fmt.Sprintf("%s is paused", g.Subject)
	if g.For > 0 {
		text += fmt.Sprintf(" for %v", g.For)
	}
	if g.Resume > 0 {
		text += fmt.Sprintf(", resumed after %v", g.Resume)
	}
	return text
}

// keys are the keys that plans use.
var keys = []string{"x", "y"}

// briefDeadline is the deadline of the tasks of type brief.
const briefDeadline = 2 * time.Second

// pause adds a person who pauses queues, types and keys one to six times, and tasks that have a key and a deadline. In
// half of the plans, processes are killed around the pauses.
func (p *Plan) pause(r *rand.Rand) {
	by := p.lastProducer()
	p.addPerson()
	for i := range 3 + r.IntN(6) {
		p.Tasks = append(p.Tasks, TaskPlan{
			Name: fmt.Sprint("e", i), At: between(r, 0, loadTime), By: by, Queue: queues[r.IntN(len(queues))], Takes: between(r, 0, 100*time.Millisecond), Brief: true,
			Key: keys[r.IntN(len(keys))],
		})
	}
	for i := range 1 + r.IntN(6) {
		g := PausePlan{Name: fmt.Sprint("g", i), At: between(r, 0, loadTime)}
		if r.IntN(4) == 0 {
			g.At = between(r, 0, faultTime)
		}
		switch r.IntN(5) {
		case 0, 1:
			g.Subject.Queue = queues[r.IntN(len(queues))]
		case 2:
			g.Subject.Key = keys[r.IntN(len(keys))]
		default:
			g.Subject.Type = []string{"work", "work", "brief", "poison", "hang"}[r.IntN(5)]
		}
		lasts := between(r, 10*time.Millisecond, 5*time.Second)
		switch r.IntN(4) {
		case 0:
			g.For, g.Resume = 2*lasts, lasts
		case 1:
			g.For = lasts
		default:
			g.Resume = lasts
		}
		p.Pauses = append(p.Pauses, g)
	}
	if r.IntN(2) == 0 || !p.faulty() {
		return
	}
	for i, g := range p.Pauses {
		kill := newFault(r, i, len(p.Roles))
		kill.Name, kill.Kind, kill.At = fmt.Sprint("q", i), Kill, g.At+between(r, 0, g.For+g.Resume)
		p.Faults = append(p.Faults, kill)
	}
}

// addPerson adds a person, unless there is one.
func (p *Plan) addPerson() {
	if !slices.Contains(p.Roles, Person) {
		p.Roles = append(p.Roles, Person)
	}
}

// faulty reports whether the plan has faults other than silent queues.
func (p *Plan) faulty() bool {
	_, silence := p.onlySilence()
	return len(p.Faults) > 0 && !silence
}

// gated reports whether gates close.
func (p *Plan) gated() bool { return len(p.Pauses)+len(p.Limits)+len(p.Targets) > 0 }

// pauses reports whether the plan pauses the queue or the type of the task.
func (p *Plan) pauses(task holdfast.Task) bool {
	return slices.ContainsFunc(p.Pauses, func(g PausePlan) bool { return g.Subject.Selects(&task) })
}

// lookAgain is the interval at which the person searches for pauses and limits that must end.
const lookAgain = time.Second

// pauseAndResume plays the person. The person makes the pauses that no earlier start of this process has begun. The
// person also resumes pauses that an earlier start has left, and pauses that have returned because the store lost
// commits.
func (p *process) pauseAndResume() {
	playAll(p, p.world.plan.Pauses, func(g PausePlan) string { return g.Name }, p.keepPaused, p.resumeForgotten)
}

// playAll plays those parts of a plan that no earlier start of the process has begun, each in a goroutine of its own.
// Until the process ends, it calls repair every lookAgain.
func playAll[Part any](p *process, parts []Part, name func(Part) string, play func(Part), repair func()) {
	if len(parts) == 0 {
		return
	}
	w := p.world
	done := make(chan struct{})
	n := 0
	w.mu.Lock()
	for _, part := range parts {
		if w.todo[name(part)] {
			n++
			go func() { play(part); done <- struct{}{} }()
		}
	}
	w.mu.Unlock()
	for p.sleep(lookAgain) {
		repair()
	}
	for range n {
		<-done
	}
}

// keepPaused makes one pause.
func (p *process) keepPaused(g PausePlan) {
	w := p.world
	if !p.sleep(g.At-time.Since(w.began)) || !p.undertake(g.Name) {
		return
	}
	defer p.finish()
	w.mu.Lock()
	if p.pausing == nil {
		p.pausing = make(map[store.Subject]int)
	}
	p.pausing[g.Subject]++
	w.mu.Unlock()
	if p.insist(func() error { return p.pause(g) }) && g.Resume > 0 && p.sleep(g.Resume) {
		p.insist(func() error { return p.resume(g.Subject) })
	}
	w.mu.Lock()
	p.pausing[g.Subject]--
	w.mu.Unlock()
}

// pause pauses a subject, and reports the answer to the checker.
func (p *process) pause(g PausePlan) error {
	paused, err := p.store.Pause(p.ctx, person, store.PauseFor(g.Subject, g.For))
	p.world.mu.Lock()
	defer p.world.mu.Unlock()
	if err == nil && !p.dead {
		p.world.check.gates.answered(paused.After)
	}
	return err
}

func (p *process) resume(subject store.Subject) error {
	p.world.mu.Lock()
	p.world.check.gates.resuming(subject)
	p.world.mu.Unlock()
	_, err := p.store.Resume(p.ctx, person, subject)
	return err
}

// resumeForgotten resumes the pauses without an end that the person does not want.
func (p *process) resumeForgotten() {
	gates, err := p.store.Gates(p.ctx)
	if err != nil {
		return // the person tries again
	}
	for _, gate := range gates {
		p.world.mu.Lock()
		wanted := p.pausing[gate.Subject] > 0
		p.world.mu.Unlock()
		if !wanted && gate.Kind == store.GatePause && gate.Until.IsZero() {
			p.mustNotFail(p.resume(gate.Subject))
		}
	}
}
