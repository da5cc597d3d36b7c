package sim

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"
)

// topicNames are the topics that plans use.
var topicNames = []string{"k", "l", "m", "n", "o"}

// WeightPlan is one change of the weight of a topic by a person.
type WeightPlan struct {
	Name   string
	At     time.Duration
	Topic  string
	Weight int
}

// giveTopics adds tasks with topics, gives topics to a quarter of the other tasks, and adds changes of weights. Most of
// the tasks are stored at about the same time, so that several topics have waiting tasks.
func (p *Plan) giveTopics(r *rand.Rand) {
	for i := range p.Tasks {
		if r.IntN(4) == 0 {
			p.Tasks[i].Topic = topicNames[r.IntN(len(topicNames))]
		}
	}
	by, begin, used := p.lastProducer(), between(r, 0, loadTime), topicNames[:2+r.IntN(len(topicNames)-1)]
	longest := []time.Duration{20 * time.Millisecond, 200 * time.Millisecond, time.Second}[r.IntN(3)]
	if !p.faulty() { // no faults, or silent queues only: the tasks stay short
		longest = min(longest, 300*time.Millisecond)
	}
	for i := range 16 + r.IntN(33) {
		task := TaskPlan{
			Name: fmt.Sprint("z", i), At: begin + between(r, 0, 50*time.Millisecond), By: by, Queue: "a", Takes: between(r, 0, longest),
			Topic: used[r.IntN(len(used))],
		}
		switch r.IntN(12) {
		case 0:
			task.Fails = 1 + r.IntN(maxAttempts-1)
		case 1:
			task.Delay = between(r, 0, time.Second)
		case 2:
			task.At, task.Queue = between(r, 0, loadTime+faultTime/2), queues[r.IntN(len(queues))]
		case 3:
			task.Key, task.Ordered = keys[r.IntN(len(keys))], p.ordered()
		}
		p.Tasks = append(p.Tasks, task)
	}
	for i := range r.IntN(4) {
		p.Weights = append(p.Weights, WeightPlan{fmt.Sprint("a", i), max(0, begin+between(r, -time.Second, time.Second)), used[r.IntN(len(used))], []int{1, 2, 5, 20}[r.IntN(4)]})
	}
}

// topical reports whether the plan has tasks with topics.
func (p *Plan) topical() bool {
	return slices.ContainsFunc(p.Tasks, func(t TaskPlan) bool { return t.Topic != "" })
}

// weigh makes a change of the plan. The caller holds w.mu.
func (w *world) weigh(p WeightPlan) {
	if _, err := w.store.Client(nil).SetTopicWeight(context.Background(), person, p.Topic, p.Weight); err != nil {
		w.check.fail("weight %s cannot be changed: %v", p.Name, err)
	}
}
