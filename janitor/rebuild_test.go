package janitor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sirupsen/logrus"
	"github.com/sirupsen/logrus/hooks/test"

	"github.com/holdfastq/holdfast/internal/message"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/broker"
	"github.com/holdfastq/holdfast/store"
)

// breaker fails at one of the calls that Rebuild makes, before or after it has done what it should.
type breaker struct {
	broker.Broker
	store laneStore
	left  int // calls that succeed
	after bool

	calls    []string
	declared []string
}

func (b *breaker) call(name string, do func() error) error {
	b.calls = append(b.calls, name)
	b.left--
	if b.left == -1 && !b.after {
		return errFault
	}
	err := do()
	if b.left == -1 {
		return errFault
	}
	return err
}

func (b *breaker) LaneNames(ctx context.Context) (lanes []string, err error) {
	err = b.call("LaneNames", func() error { lanes, err = b.store.LaneNames(ctx); return err })
	return lanes, err
}

func (b *breaker) UnticketLane(ctx context.Context, lane string) (n int, err error) {
	err = b.call("UnticketLane "+lane, func() error { n, err = b.store.UnticketLane(ctx, lane); return err })
	return n, err
}

func (b *breaker) Missing(ctx context.Context, objects []broker.Object) (names []string, err error) {
	err = b.call("Missing", func() error { names, err = b.Broker.Missing(ctx, objects); return err })
	return names, err
}

func (b *breaker) Declare(ctx context.Context, objects []broker.Object) (names []string, err error) {
	err = b.call("Declare", func() error {
		names, err = b.Broker.Declare(ctx, objects)
		b.declared = append(b.declared, names...)
		return err
	})
	return names, err
}

func (w *world) breaker(left int) *breaker {
	return &breaker{Broker: w.broker, store: w.store, left: left}
}

const never = 1 << 30 // calls

// lose removes objects from the broker, with their messages.
func (w *world) lose(objects ...broker.Object) {
	w.Helper()
	w.must(w.broker.Delete(w.Context(), objects))
}

func (w *world) object(name string) broker.Object {
	w.Helper()
	for _, o := range append(w.topology.Queues([]string{lane, "other"}), w.topology.MarkerObject()) {
		if o.Name == name {
			return o
		}
	}
	w.Fatalf("no object %s", name)
	panic("not reached")
}

// other stores tasks of a second lane that count as ticketed.
func (w *world) other(n int) []message.Ticket {
	w.Helper()
	task := newTask()
	task.Lane = "other"
	inserted, err := w.store.Insert(w.Context(), slices.Repeat([]holdfast.NewTask{task}, n), time.Hour)
	w.must(err)
	w.must(w.store.Discharge(w.Context(), []int64{inserted.Receipts[0].ID}))
	return inserted.Receipts[0].Tickets
}

// Wherever a rebuild dies, and whatever the scheduler does meanwhile, the next one brings every
// ready task its ticket.
func TestARebuildMayDieAtAnyStep(t *testing.T) {
	t.Parallel()
	for name, lost := range map[string]func(*world) []broker.Object{
		"everything is gone": func(w *world) []broker.Object {
			return append(w.topology.Queues([]string{lane, "other"}), w.topology.MarkerObject())
		},
		"one queue is gone": func(w *world) []broker.Object { return []broker.Object{w.object(w.main())} },
		// Such as in a broker that somebody has set up anew by hand.
		"only the marker is gone, and all tickets": func(w *world) []broker.Object {
			w.takeTickets(w.main())
			w.takeTickets(w.topology.Main("other"))
			return []broker.Object{w.topology.MarkerObject()}
		},
	} {
		for _, after := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, answer lost %t", name, after), func(t *testing.T) {
				t.Parallel()
				w := bareWorld(t)
				mine, others := w.ticketed(3), w.other(2)
				w.declare()
				for step := 0; ; step++ {
					w.lose(lost(w)...)
					w.sql("update holdfast.tasks set due_at = null, ticketed_at = now()")
					if name == "one queue is gone" {
						w.takeTickets(w.topology.Main("other"))
						w.send(w.topology.Main("other"), tickets(others...))
					}
					b := w.breaker(step)
					b.after = after
					_, _, err := Rebuild(t.Context(), b, b, w.topology)
					_, _ = w.janitor(nil).dispatchDue(t.Context()) // runs beside it, and fails if a queue is missing
					if _, _, err := Rebuild(t.Context(), w.store, w.broker, w.topology); err != nil {
						t.Fatalf("died at call %d, %v: %v", step+1, b.calls, err)
					}
					w.sooner()
					_, dispatchErr := w.janitor(nil).dispatchDue(t.Context())
					w.must(dispatchErr)
					has := make(map[message.Ticket]bool)
					for _, queue := range []string{w.main(), w.topology.Main("other")} {
						for _, ticket := range w.takeTickets(queue) {
							has[ticket] = true
						}
					}
					for _, ticket := range append(slices.Clone(mine), others...) {
						if !has[ticket] {
							t.Errorf("died at call %d, %v: task %s has no ticket", step+1, b.calls, ticket.Task)
						}
					}
					if missing, err := w.topology.Verify(t.Context(), w.broker, []string{lane, "other"}); err != nil || len(missing) > 0 {
						t.Errorf("died at call %d, %v: missing are %v, %v", step+1, b.calls, missing, err)
					}
					if err == nil {
						if step < 4 {
							t.Errorf("a rebuild makes %d calls only: %v", step, b.calls)
						}
						return
					}
				}
			})
		}
	}
}

// The first declaration of a queue is normal. A queue that is gone later is worth a warning.
func TestOnlyAQueueThatWasThereIsMissed(t *testing.T) {
	t.Parallel()
	w := bareWorld(t)
	w.ticketed(1)
	log, hook := test.NewNullLogger()
	j := w.janitor(func(o *Options) { o.Log = log })
	w.must(j.rebuild(t.Context()))
	if line := hook.LastEntry(); line == nil || line.Level != logrus.InfoLevel || !strings.Contains(line.Message, "for the first time") {
		t.Errorf("the first declaration: %v", line)
	}
	w.must(w.broker.Delete(t.Context(), []broker.Object{{Kind: broker.Queue, Name: w.main()}}))
	w.must(j.rebuild(t.Context()))
	if line := hook.LastEntry(); line == nil || line.Level != logrus.WarnLevel || !strings.Contains(line.Message, "queues were missing") {
		t.Errorf("a lost queue: %v", line)
	}
	if err := j.Refused(); err != nil {
		t.Errorf("refused: %v", err)
	}
	j.o.Broker = refusing{w.broker}
	if err := j.rebuild(t.Context()); err == nil || j.Refused() == nil {
		t.Errorf("%v, refused: %v", err, j.Refused())
	}
}

// refusing is a broker that shows nothing.
type refusing struct{ broker.Broker }

func (refusing) Missing(context.Context, []broker.Object) ([]string, error) {
	return nil, errors.New("access refused")
}

func TestARebuildOfACompleteTopologyDoesNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ticket := w.ticketed(1)[0]
	b := w.breaker(never)
	missing, n, err := Rebuild(t.Context(), b, b, w.topology)
	if err != nil || n != 0 || missing != nil {
		t.Errorf("missing %v, %d tasks, %v", missing, n, err)
	}
	if !slices.Equal(b.calls, []string{"LaneNames", "Missing"}) {
		t.Errorf("calls are %v", b.calls)
	}
	if !w.position(ticket).Ticketed {
		t.Error("the task got another ticket")
	}
}

// What is lost with one queue of a lane, or with the marker, and what is not.
func TestARebuildReplacesWhatWasLost(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		lost  func(*world) string
		lanes []string // whose tickets do not count any more
	}{
		"the marker":         {func(w *world) string { return w.topology.Marker() }, []string{lane, "other"}},
		"a main queue":       {(*world).main, []string{lane}},
		"an again queue":     {(*world).again, []string{lane}},
		"a holding queue":    {(*world).hold, nil},
		"the rescue queue":   {func(w *world) string { return w.topology.Rescue() }, nil},
		"the quarantine":     {func(w *world) string { return w.topology.Quarantine() }, nil},
		"another again lane": {func(w *world) string { return w.topology.Again("other") }, []string{"other"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := bareWorld(t)
			byLane := map[string][]message.Ticket{lane: w.ticketed(3), "other": w.other(2)}
			w.declare()
			running := w.ticketed(1)
			kept := w.claim(w.openRun(), running...)[0]
			w.lose(w.object(test.lost(w)))
			b := w.breaker(never)
			missing, n, err := Rebuild(t.Context(), b, b, w.topology)
			w.must(err)
			if want := []string{test.lost(w)}; !slices.Equal(missing, want) || !slices.Equal(b.declared, want) {
				t.Errorf("missing %v, declared %v, want %v", missing, b.declared, want)
			}
			want := 0
			for lane, list := range byLane {
				replaced := slices.Contains(test.lanes, lane)
				if replaced {
					want += len(list)
				}
				for _, ticket := range list {
					if w.position(ticket).Ticketed == replaced {
						t.Errorf("lane %s: is a new ticket wanted for %v? %t", lane, ticket, replaced)
					}
				}
			}
			if n != want {
				t.Errorf("%d tasks, want %d", n, want)
			}
			kept.Payload = nil
			w.untouched(kept)
			if left, err := w.topology.Verify(t.Context(), w.broker, []string{lane, "other"}); err != nil || len(left) > 0 {
				t.Errorf("still missing are %v, %v", left, err)
			}
		})
	}
}

// vanishing loses a queue in the moment after somebody looked whether it is there.
type vanishing struct {
	*breaker
	lose func()
}

func (v vanishing) Missing(ctx context.Context, objects []broker.Object) ([]string, error) {
	names, err := v.breaker.Missing(ctx, objects)
	v.lose()
	return names, err
}

// A queue that vanishes during a rebuild must be missed by the next one: whoever made it anew on the
// way would hide that its tickets are gone.
func TestARebuildDoesNotHideALaterLoss(t *testing.T) {
	t.Parallel()
	w := bareWorld(t)
	mine, others := w.ticketed(2), w.other(2)
	w.declare()
	w.send(w.topology.Main("other"), tickets(others...))
	w.lose(w.object(w.main()))
	b := vanishing{w.breaker(never), func() { w.lose(w.object(w.topology.Main("other"))) }}
	_, _, err := Rebuild(t.Context(), b, b, w.topology)
	w.must(err)
	_, _, err = Rebuild(t.Context(), w.store, w.broker, w.topology)
	w.must(err)
	_, err = w.janitor(nil).dispatchDue(t.Context())
	w.must(err)
	w.sameTickets("in the lane", w.takeTickets(w.main()), mine)
	w.sameTickets("in the other lane", w.takeTickets(w.topology.Main("other")), others)
}

// The duty finds a wiped broker by itself, and a lane that is new.
func TestTheRebuildDutyNoticesByItself(t *testing.T) {
	t.Parallel()
	w := bareWorld(t)
	mine := w.ticketed(5)
	w.run(w.janitor(func(o *Options) { o.RebuildEvery = 50 * time.Millisecond; o.SentinelInterval = time.Hour }))
	complete := func(lanes ...string) func() bool {
		return func() bool {
			missing, err := w.topology.Verify(t.Context(), w.broker, lanes)
			return err == nil && len(missing) == 0
		}
	}
	w.eventually("everything is declared", complete(lane))
	w.eventually("all tasks are ticketed again", func() bool {
		return w.number("select count(*) from holdfast.tasks where due_at is not null") == 0
	})
	w.sameTickets("published", w.takeTickets(w.main()), mine)
	task := newTask()
	task.Lane = "other"
	inserted, err := w.store.Insert(t.Context(), []holdfast.NewTask{task}, 0)
	w.must(err)
	w.eventually("the new lane is declared", complete(lane, "other"))
	got := w.listen(w.topology.Main("other"))
	for {
		m := w.decode(got.next().Body)
		if m.Sentinel != nil {
			continue
		}
		if !slices.Equal(m.Tickets, inserted.Receipts[0].Tickets) {
			t.Errorf("in the new lane is %+v", m)
		}
		break
	}
}

var _ laneStore = store.Store(nil)
