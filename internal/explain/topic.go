package explain

import (
	"fmt"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/internal/slots"
	"github.com/holdfastq/holdfast/store"
)

// waitsForSlot reports whether a ready task waits for a slot of its topic.
func (f *Facts) waitsForSlot() bool { return f.Task.State == holdfast.Ready && f.Slot != nil }

// whyTopic returns the cause of a task that waits for a slot.
func (f *Facts) whyTopic() string {
	p := f.Slot
	text := fmt.Sprintf("it waits for a slot of the topic %s: %s; ", p.Topic, aheadInTopic(p.Ahead))
	if p.Executors == 0 {
		return text + fmt.Sprintf("no live worker takes the queue %s, so the queue has no slots", p.Queue)
	}
	text += fmt.Sprintf("the topic has %s in the queue %s, whose workers have %s", count(p.Slots, "slot"), p.Queue, count(p.Executors, "executor"))
	// Without observed rates, FreeFor returns its minimum.
	q := slots.Queue{Executors: p.Executors, Rates: new(slots.Rates), Several: p.Others > 0}
	text += fmt.Sprintf("; %s, so the topic may have %s, or more if its tasks are short", othersWait(p.Others), count(q.FreeFor(p.Topic), "slot"))
	if p.Weight != 1 {
		text += fmt.Sprintf("; the topic has the weight %d", p.Weight)
	}
	return text
}

// aheadInTopic describes how many tasks of the topic get slots before the task.
func aheadInTopic(n int) string {
	switch {
	case n == 0:
		return "no task of the topic is ahead"
	case n == 1:
		return "1 task of the topic is ahead"
	case n >= store.MaxCountedBlocked:
		return fmt.Sprintf("%d tasks of the topic or more are ahead", n)
	}
	return fmt.Sprintf("%d tasks of the topic are ahead", n)
}

// othersWait describes in how many other topics tasks wait for slots.
func othersWait(n int) string {
	switch {
	case n == 0:
		return "tasks of no other topic wait"
	case n == 1:
		return "tasks of 1 other topic wait"
	case n >= store.MaxCountedBlocked:
		return fmt.Sprintf("tasks of %d other topics or more wait", n)
	}
	return fmt.Sprintf("tasks of %d other topics wait", n)
}
