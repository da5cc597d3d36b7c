package memory

import (
	"fmt"
	"strings"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/internal/message"
)

// Step describes an effect that is about to take place. It is safe to keep a Step.
type Step struct {
	Op string // such as "Claim" or "DispatchDue end"

	worker   holdfast.WorkerID
	tickets  []message.Ticket
	outcomes []bool // outcomes of the tickets or the ids, in the same order
	moves    []holdfast.Transition
	ids      []int64
	text     string
	names    []string
	count    int // number of tasks
	begin    func()
}

// Begin begins the effect, and reports whether that is possible. The effect then sees a part of the database as it is
// now, as a statement does that has to wait for a lock. A Gate may call Begin once before it calls the effect. It must
// do so like an effect, never during one.
func (s Step) Begin() bool {
	if s.begin == nil {
		return false
	}
	s.begin()
	return true
}

// Note describes the step in a few words, such as "worker 3, tickets 1/1 2/1". It builds the text when it is called,
// and returns the same text each time.
func (s Step) Note() string {
	var parts []string
	if s.text != "" {
		parts = append(parts, s.text)
	}
	if len(s.names) > 0 {
		parts = append(parts, strings.Join(s.names, " "))
	}
	if s.count > 0 {
		parts = append(parts, fmt.Sprintf("%d tasks", s.count))
	}
	if s.worker != 0 {
		parts = append(parts, "worker "+s.worker.String())
	}
	if len(s.tickets) > 0 {
		parts = append(parts, "tickets"+join(s.tickets, func(i int, t message.Ticket) string {
			return fmt.Sprintf("%d/%d%s", t.Task, t.Attempt, s.outcome(i))
		}))
	}
	if len(s.moves) > 0 {
		parts = append(parts, "moves"+join(s.moves, func(_ int, m holdfast.Transition) string {
			return fmt.Sprintf("%s:%d/%d", m.Event, m.Task, m.Attempt)
		}))
	}
	if len(s.ids) > 0 {
		parts = append(parts, "ids"+join(s.ids, func(i int, id int64) string { return fmt.Sprint(id, s.outcome(i)) }))
	}
	return strings.Join(parts, ", ")
}

// outcome returns a mark for a ticket or id that was not published.
func (s Step) outcome(i int) string {
	if i < len(s.outcomes) && !s.outcomes[i] {
		return "!"
	}
	return ""
}

func join[T any](list []T, say func(int, T) string) string {
	var said strings.Builder
	for i, value := range list {
		said.WriteString(" " + say(i, value))
	}
	return said.String()
}
