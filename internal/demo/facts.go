package demo

import (
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"

	"github.com/holdfastq/holdfast"
)

// facts are what the target counted.
type facts struct {
	messages, delivered, retried, rejected, never int
	twice, dying                                  int // delivered twice; of them, with a first result that died with the process
	calls                                         int
	interrupted                                   int             // being delivered by the process that was killed
	recovery                                      []time.Duration // kill to the next call, of those
	took                                          time.Duration
	counts                                        map[holdfast.State]int64 // the store's, to compare
}

// facts counts. A message whose sender went away around the kill is one that was
// executing in the killed process. crashed says of which messages the store knows that an attempt
// ended with its process.
func (t *target) facts(messages int, crashed map[int]bool, killed time.Time, took time.Duration) facts {
	t.mu.Lock()
	defer t.mu.Unlock()
	f := facts{messages: messages, took: took}
	for number, m := range t.messages {
		f.calls += len(m.calls)
		switch {
		case len(m.delivered) > 0:
			f.delivered++
		case m.rejected > 0:
			f.rejected++
		default:
			f.never++
		}
		if m.failures > 0 {
			f.retried++
		}
		if len(m.delivered) > 1 {
			f.twice++
			if crashed[number] {
				f.dying++
			}
		}
		for _, at := range m.aborted {
			f.interrupted++
			next, _ := slices.BinarySearchFunc(m.calls, at, func(call, at time.Time) int { return call.Compare(at) })
			if next < len(m.calls) {
				f.recovery = append(f.recovery, m.calls[next].Sub(killed))
			}
		}
	}
	slices.Sort(f.recovery)
	return f
}

func (f facts) print(out io.Writer) {
	recovered := "none was in flight"
	if n := len(f.recovery); n > 0 {
		recovered = fmt.Sprintf("%s median, %s at most", f.recovery[n/2].Round(10*time.Millisecond), f.recovery[n-1].Round(10*time.Millisecond))
	}
	w := table.NewWriter()
	w.SetOutputMirror(out)
	w.SetStyle(table.StyleLight)
	w.AppendHeader(table.Row{"counted at the target", ""})
	w.AppendRows([]table.Row{
		{"messages enqueued", f.messages},
		{"delivered", f.delivered},
		{"of them after failures (retried)", f.retriedAndDelivered()},
		{"delivered twice", f.twice},
		{"of them answered as the process died", f.dying},
		{"refused for good (400), dead", f.rejected},
		{"failed every attempt, dead", f.never},
		{"lost", f.lost()},
		{"calls in all", f.calls},
		{"in flight in the killed process", f.interrupted},
		{"they started again after the kill", recovered},
		{"everything took", f.took.Round(100 * time.Millisecond)},
	})
	fmt.Fprintln(out)
	w.Render()
}

// retriedAndDelivered are messages that failed and got through in the end.
func (f facts) retriedAndDelivered() int { return f.retried - f.never }

// lost are messages of which neither the target nor the store's dead can tell.
func (f facts) lost() int { return f.messages - f.delivered - f.rejected - f.never }

// check compares the target's books with the promises and with the store's. An answer whose result the
// process had no time to write is one more delivery: execution is at least once.
func (f facts) check() error {
	switch {
	case f.lost() != 0:
		return fmt.Errorf("%d messages never reached the target", f.lost())
	case f.interrupted != len(f.recovery):
		return fmt.Errorf("of %d interrupted messages only %d started again", f.interrupted, len(f.recovery))
	case f.twice > f.dying:
		return fmt.Errorf("%d messages were delivered twice, and only for %d the kill explains it", f.twice, f.dying)
	case f.counts[holdfast.Dead] < int64(f.rejected+f.never):
		return fmt.Errorf("the store has %d dead messages, the target counted %d", f.counts[holdfast.Dead], f.rejected+f.never)
	}
	return nil
}
