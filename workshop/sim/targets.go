package sim

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/store"
)

// TargetPlan is one target of tasks of the type http. It fails for a time.
type TargetPlan struct {
	Name  string // name and host of the target
	At    time.Duration
	For   time.Duration
	Fault TargetFault
	Pause time.Duration // the pause that it requests while it refuses; 0 means none
	Every int           // an erratic target answers about one in Every requests without a fault
	// Rejects means that the faults of a target that fails or is erratic accuse the messages. An erratic target then
	// rejects the same tasks each time.
	Rejects bool
}

// TargetFault is the behavior of a target while it fails.
type TargetFault uint8

// The faults of targets.
const (
	TargetFails   TargetFault = iota // it answers with a fault
	TargetRefuses                    // it requests a pause
	TargetSilent                     // it does not answer
	TargetErratic                    // it answers some requests with a fault
)

// String describes the target for people.
func (t TargetPlan) String() string {
	text := fmt.Sprintf("the target %s for %v", [...]string{"fails", "refuses", "is silent", "is erratic"}[t.Fault], t.For)
	if t.Pause > 0 {
		text += fmt.Sprintf(", asks for %v", t.Pause)
	}
	if t.Rejects {
		text += ", rejects messages"
	}
	if t.Every > 0 {
		text += fmt.Sprintf(", fails all but one in %d requests", t.Every)
	}
	return text
}

// failsAt reports whether the target fails at a time from the start of the simulation.
func (t *TargetPlan) failsAt(at time.Duration) bool { return t.At <= at && at < t.At+t.For }

// subject selects the tasks of the target.
func (t *TargetPlan) subject() store.Subject {
	return store.Subject{Target: holdfast.TargetOf(holdfast.TypeHTTP, payloadOf(&TaskPlan{Target: t.Name}))}
}

const (
	// deliveryTimeout is the timeout of a task of the type http.
	deliveryTimeout = 1500 * time.Millisecond
	// targetFaultsInSuccession is the number of consecutive faults that trip a breaker in the plans without a rate of faults.
	targetFaultsInSuccession = 2
)

// deliver adds one or two targets that fail for a time, and tasks for them. In a third of the plans, a person pauses a
// target or resumes one whose breaker has tripped. In half of the plans, processes are killed around the failures. In
// some plans, the store's clock leaps back. In half of the plans, a rate of faults trips breakers.
func (p *Plan) deliver(r *rand.Rand) {
	by := p.lastProducer()
	for i := range 1 + r.IntN(2) {
		t := TargetPlan{Name: fmt.Sprint("d", i), At: between(r, 0, loadTime), For: between(r, 100*time.Millisecond, longestFault), Fault: TargetFault(r.IntN(int(TargetErratic)))}
		if t.Fault == TargetRefuses && r.IntN(2) == 0 {
			t.Pause = between(r, 500*time.Millisecond, 10*time.Second)
		}
		p.Targets = append(p.Targets, t)
	}
	for i := range 8 + r.IntN(20) {
		p.Tasks = append(p.Tasks, TaskPlan{
			Name: fmt.Sprint("y", i), At: between(r, 0, loadTime+faultTime), By: by, Queue: queues[r.IntN(len(queues))], Takes: between(r, 0, 300*time.Millisecond),
			Key: append(keys, "")[r.IntN(len(keys)+1)], Target: p.Targets[r.IntN(len(p.Targets))].Name,
		})
	}
	p.Breaker = holdfast.BreakerRules{Faults: targetFaultsInSuccession}
	if r := rand.New(rand.NewPCG(p.Seed, 0x7137449123ef65cd)); r.IntN(2) == 0 {
		p.tripByRate(r, by)
	}
	rejects := rand.New(rand.NewPCG(p.Seed, 0x3b1e90c2d58a647f))
	for i := range p.Targets {
		t := &p.Targets[i]
		t.Rejects = (t.Fault == TargetFails || t.Fault == TargetErratic) && rejects.IntN(3) == 0
	}
	if r.IntN(3) == 0 {
		t := p.Targets[r.IntN(len(p.Targets))]
		p.addPerson()
		p.Pauses = append(p.Pauses, PausePlan{
			Name: "z0", At: t.At + between(r, 0, t.For), Subject: t.subject(), Resume: between(r, 10*time.Millisecond, longestFault),
		})
	}
	if !p.faulty() {
		return
	}
	if r.IntN(6) == 0 {
		p.setBack(r)
	}
	if r.IntN(2) == 0 {
		return
	}
	for i, t := range p.Targets {
		kill := newFault(r, i, len(p.Roles))
		kill.Name, kill.Kind, kill.At = fmt.Sprint("x", i), Kill, t.At+between(r, 0, t.For)
		p.Faults = append(p.Faults, kill)
	}
}

// tripByRate makes a rate of faults trip breakers. In most plans, faults in succession then trip none. Most targets become
// erratic, and get more tasks.
func (p *Plan) tripByRate(r *rand.Rand, by int) {
	p.Breaker = holdfast.BreakerRules{Rate: 20 + r.IntN(61), Attempts: 2 + r.IntN(4), Window: between(r, time.Second, 5*time.Second)}
	if r.IntN(3) == 0 {
		p.Breaker.Faults = 4
	}
	for i := range p.Targets {
		t := &p.Targets[i]
		if r.IntN(4) == 0 {
			continue
		}
		t.Fault, t.Pause, t.Every = TargetErratic, 0, 2+r.IntN(3)
		t.At, t.For = between(r, 0, loadTime), 2*longestFault // long enough for several attempts of a task
		for k := range 8 + r.IntN(12) {
			p.Tasks = append(p.Tasks, TaskPlan{
				Name: fmt.Sprintf("y%d%s", k, t.Name), At: t.At + between(r, 0, t.For/2), By: by, Queue: queues[r.IntN(len(queues))],
				Takes: between(r, 0, 100*time.Millisecond), Target: t.Name,
			})
		}
	}
}

// target returns a target of the plan, or nil.
func (p *Plan) target(name string) *TargetPlan {
	for i := range p.Targets {
		if p.Targets[i].Name == name {
			return &p.Targets[i]
		}
	}
	return nil
}

// payloadOf returns the payload of a task. It contains the name of the task, by which handlers find its plan.
func payloadOf(t *TaskPlan) []byte {
	var value any = t.Name
	if t.Target != "" {
		value = map[string]string{"url": "http://" + t.Target + "/" + t.Name}
	}
	payload, _ := json.Marshal(value) // strings always marshal
	return payload
}

// nameIn returns the name in the payload of a task.
func nameIn(payload []byte) string {
	text := strings.Trim(string(payload), `"}`)
	return text[strings.LastIndexByte(text, '/')+1:]
}

// askTarget sends a request of an attempt to the target of its task. It returns an error if the target fails.
func (p *process) askTarget(ctx context.Context, task holdfast.Task, plan *TaskPlan) error {
	target := p.world.plan.target(plan.Target)
	if target == nil || !target.failsAt(time.Since(p.world.began)) {
		return nil
	}
	switch target.Fault {
	case TargetRefuses:
		return holdfast.Refused(target.Pause, errPlanned)
	case TargetSilent:
		<-ctx.Done()
		return holdfast.NoAnswer(ctx.Err())
	case TargetErratic:
		number := int(task.ID)
		if !target.Rejects {
			number += task.Attempt
		}
		if number%target.Every == 0 {
			return nil
		}
	}
	if target.Rejects {
		return holdfast.MessageFault(errPlanned)
	}
	return holdfast.TargetFault(errPlanned)
}
