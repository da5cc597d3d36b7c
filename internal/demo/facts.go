package demo

import (
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"

	"github.com/holdfastq/holdfast"
)

// facts are the numbers that the target counted.
type facts struct {
	messages, delivered, rejected int
	retried                       int             // messages that failed at least once
	exhausted                     int             // messages that failed at every attempt
	duplicates                    int             // messages that were delivered more than once
	explained                     int             // duplicates whose attempt was running in the killed process
	calls                         int             // requests
	interrupted                   int             // requests that the kill interrupted
	recovery                      []time.Duration // from the kill to the next request of each interrupted message, ascending
	took                          time.Duration
	counts                        map[holdfast.State]int64 // the store's numbers, for comparison
}

// facts returns what the target counted. A message was in flight in the killed process if the target lost the sender of
// a request. crashed reports for each message number whether the store counted a crash.
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
			f.exhausted++
		}
		if m.failures > 0 {
			f.retried++
		}
		if len(m.delivered) > 1 {
			f.duplicates++
			if crashed[number] {
				f.explained++
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
	recovered := "none"
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
		{"delivered after failures", f.retriedAndDelivered()},
		{"delivered twice", f.duplicates},
		{"delivered twice because of the kill", f.explained},
		{"rejected (400), dead", f.rejected},
		{"failed at every attempt, dead", f.exhausted},
		{"lost", f.lost()},
		{"requests", f.calls},
		{"requests that the kill interrupted", f.interrupted},
		{"from the kill to their next request", recovered},
		{"total time", f.took.Round(100 * time.Millisecond)},
	})
	fmt.Fprintln(out)
	w.Render()
}

// retriedAndDelivered returns the number of messages that were delivered after at least one failure.
func (f facts) retriedAndDelivered() int { return f.retried - f.exhausted }

// lost returns the number of messages that never reached the target.
func (f facts) lost() int { return f.messages - f.delivered - f.rejected - f.exhausted }

// check returns an error if the numbers of the target break a promise or contradict the numbers of the store. Execution
// is at least once: if a process is killed between an answer and the write of its result, the message is delivered
// again.
func (f facts) check() error {
	switch {
	case f.lost() != 0:
		return fmt.Errorf("%d messages never reached the target", f.lost())
	case f.interrupted != len(f.recovery):
		return fmt.Errorf("only %[2]d of %[1]d interrupted messages started again", f.interrupted, len(f.recovery))
	case f.duplicates > f.explained:
		return fmt.Errorf("%d messages were delivered twice, but the kill explains only %d of them", f.duplicates, f.explained)
	case f.counts[holdfast.Dead] < int64(f.rejected+f.exhausted):
		return fmt.Errorf("the store has %d dead messages, the target counted %d", f.counts[holdfast.Dead], f.rejected+f.exhausted)
	}
	return nil
}
