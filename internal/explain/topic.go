package explain

import (
	"fmt"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/internal/slots"
)

// waitsForSlot reports whether a ready task waits for a slot of its topic.
func (f *Facts) waitsForSlot() bool { return f.Task.State == holdfast.Ready && f.Slot != nil }

// whyTopic returns the cause of a task that waits for a slot.
func (f *Facts) whyTopic() string {
	p := f.Slot
	text := fmt.Sprintf("it waits for a slot of the topic %s: %s; ", p.Topic,
		upTo(p.Ahead, "task of the topic is ahead", "tasks of the topic", "are ahead"))
	if p.Executors == 0 {
		return text + fmt.Sprintf("no live worker takes the queue %s, so the queue has no slots", p.Queue)
	}
	text += fmt.Sprintf("the topic has %s in the queue %s, whose workers have %s", count(p.Slots, "slot"), p.Queue, count(p.Executors, "executor"))
	// Without observed rates, FreeFor returns its minimum.
	q := slots.Queue{Executors: p.Executors, Rates: new(slots.Rates), Several: p.Others > 0}
	text += fmt.Sprintf("; tasks of %s, so the topic may have %s, or more if its tasks are short",
		upTo(p.Others, "other topic wait", "other topics", "wait"), count(q.FreeFor(p.Topic), "slot"))
	if p.Weight != 1 {
		text += fmt.Sprintf("; the topic has the weight %d", p.Weight)
	}
	return text
}
