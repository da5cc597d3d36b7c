package consumer

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	logtest "github.com/sirupsen/logrus/hooks/test"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/store"
)

// reported collects reports.
type reported struct {
	mu      sync.Mutex
	fail    error
	reports []store.TargetReport
}

func (r *reported) report(_ context.Context, reports []store.TargetReport) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.fail != nil {
		return r.fail
	}
	r.reports = append(r.reports, reports...)
	return nil
}

func delivery(target string) *holdfast.Task {
	return &holdfast.Task{Type: holdfast.TypeHTTP, Payload: fmt.Appendf(nil, `{"url": %q}`, target)}
}

// attempt makes an attempt that ends at once.
func attempt(ts *targets, task *holdfast.Task, probe bool, err error) {
	ts.note(ts.begin(task, probe), task.ID, probe, false, err)
}

// silentAttempts begins n attempts for a target that does not answer. After another target has answered, it begins one
// more.
func silentAttempts(n int) func(*targets) {
	return func(ts *targets) {
		for range n {
			ts.begin(delivery(dead), false)
		}
		time.Sleep(4 * time.Second)
		attempt(ts, delivery(alive), false, nil)
		ts.begin(delivery(dead), false)
	}
}

// faultsAndAnAnswer makes n attempts whose target answers 500, and one that succeeds.
func faultsAndAnAnswer(ts *targets, n int) {
	for range n {
		attempt(ts, delivery(dead), false, holdfast.TargetFault(errors.New("500")))
	}
	attempt(ts, delivery(dead), false, nil)
}

// rejections makes an attempt of each of n tasks, from the id first on. The target answers 500.
func rejections(ts *targets, first, n int) {
	for i := range n {
		task := delivery(dead)
		task.ID = holdfast.TaskID(first + i)
		attempt(ts, task, false, holdfast.MessageFault(errors.New("500")))
	}
}

const dead, alive, other = "https://dead.example:443", "https://alive.example:443", "https://other.example:443"

func TestFaultsInSuccessionTripABreaker(t *testing.T) {
	fault, answer := holdfast.NoAnswer(errors.New("refused")), holdfast.Answered(errors.New("404"))
	for name, test := range map[string]struct {
		play func(*targets)
		want []store.TargetReport
	}{
		"too few": {func(ts *targets) {
			for range 4 {
				attempt(ts, delivery(dead), false, fault)
			}
		}, nil},
		"an answer between": {func(ts *targets) {
			for i := range 8 {
				attempt(ts, delivery(dead), false, map[bool]error{false: fault, true: answer}[i == 4])
			}
		}, nil},
		"enough": {func(ts *targets) {
			for range 5 {
				attempt(ts, delivery(dead), false, fault)
			}
		}, []store.TargetReport{{Target: dead, Trip: true, Cause: "refused"}}},
		"nothing answers": {func(ts *targets) {
			attempt(ts, delivery(alive), false, nil)
			time.Sleep(time.Second)
			for range 50 {
				attempt(ts, delivery(dead), false, fault)
				attempt(ts, delivery(other), false, fault)
			}
		}, nil},
		"another target answers": {func(ts *targets) {
			attempt(ts, delivery(other), false, fault)
			for range 5 {
				attempt(ts, delivery(dead), false, fault)
				time.Sleep(time.Millisecond)
				attempt(ts, delivery(alive), false, nil)
			}
		}, []store.TargetReport{{Target: dead, Trip: true, Cause: "refused"}}},
		"silence of many attempts": {silentAttempts(10), []store.TargetReport{{Target: dead, Trip: true, Cause: "no answer to 10 requests for 4s"}}},
		"silence of few attempts":  {silentAttempts(9), nil},
		"many attempts and an answer": {func(ts *targets) {
			for range 11 {
				ts.begin(delivery(dead), false)
			}
			time.Sleep(3500 * time.Millisecond)
			ts.note(dead, 0, false, false, nil)
			time.Sleep(500 * time.Millisecond)
			attempt(ts, delivery(alive), false, nil)
			ts.begin(delivery(dead), false)
		}, nil},
		"silence of all targets": {func(ts *targets) {
			for range 20 {
				ts.begin(delivery(dead), false)
				ts.begin(delivery(other), false)
			}
			time.Sleep(4 * time.Second)
			ts.begin(delivery(dead), false)
		}, nil},
		"most of 20 attempts": {func(ts *targets) {
			for range 5 {
				faultsAndAnAnswer(ts, 4)
			}
		}, []store.TargetReport{{Target: dead, Trip: true, Cause: "17 of 21 requests within 30s failed, at last with: 500"}}},
		"most of 19 attempts": {func(ts *targets) {
			for range 3 {
				faultsAndAnAnswer(ts, 4)
			}
			for range 3 {
				attempt(ts, delivery(dead), false, fault)
			}
		}, nil},
		"too few of many attempts": {func(ts *targets) {
			for range 40 {
				faultsAndAnAnswer(ts, 2)
				attempt(ts, delivery(dead), false, nil)
			}
		}, nil},
		"most of 20 attempts in a long time": {func(ts *targets) {
			for range 40 {
				faultsAndAnAnswer(ts, 4)
				time.Sleep(8 * time.Second)
			}
		}, nil},
		"answers before the first fault are not counted": {func(ts *targets) {
			for range 100 {
				attempt(ts, delivery(dead), false, nil)
			}
			for range 5 {
				faultsAndAnAnswer(ts, 4)
			}
		}, []store.TargetReport{{Target: dead, Trip: true, Cause: "17 of 21 requests within 30s failed, at last with: 500"}}},
		"most attempts without an answer beside another target": {func(ts *targets) {
			attempt(ts, delivery(other), false, fault)
			for range 6 {
				for range 4 {
					time.Sleep(time.Millisecond)
					attempt(ts, delivery(alive), false, nil)
					time.Sleep(time.Millisecond)
					attempt(ts, delivery(dead), false, fault)
				}
				attempt(ts, delivery(dead), false, answer)
			}
		}, []store.TargetReport{{Target: dead, Trip: true, Cause: "16 of 20 requests within 30s failed, at last with: refused"}}},
		"a probe forgets the window": {func(ts *targets) {
			for range 3 {
				faultsAndAnAnswer(ts, 4)
			}
			attempt(ts, delivery(dead), true, nil)
			for range 3 {
				faultsAndAnAnswer(ts, 4)
			}
		}, []store.TargetReport{{Target: dead, Passed: 1}}},
		"interrupted attempts": {func(ts *targets) {
			for range 9 {
				ts.note(ts.begin(delivery(dead), false), 0, false, true, fault)
			}
		}, nil},
		"two targets answer 500": {func(ts *targets) {
			for range 5 {
				attempt(ts, delivery(dead), false, holdfast.TargetFault(errors.New("500")))
				attempt(ts, delivery(other), false, holdfast.TargetFault(errors.New("500")))
			}
		}, []store.TargetReport{{Target: dead, Trip: true, Cause: "500"}, {Target: other, Trip: true, Cause: "500"}}},
		"one old fault elsewhere": {func(ts *targets) {
			attempt(ts, delivery(other), false, fault)
			time.Sleep(time.Hour)
			for range 5 {
				attempt(ts, delivery(dead), false, fault)
			}
		}, []store.TargetReport{{Target: dead, Trip: true, Cause: "refused"}}},
		"faults far apart": {func(ts *targets) {
			for range 9 {
				attempt(ts, delivery(dead), false, fault)
				time.Sleep(time.Hour)
			}
		}, nil},
		"an old fault before the own network broke": {func(ts *targets) {
			attempt(ts, delivery(dead), false, fault)
			time.Sleep(time.Second)
			attempt(ts, delivery(alive), false, nil)
			time.Sleep(time.Second)
			for range 8 {
				attempt(ts, delivery(other), false, fault)
				time.Sleep(time.Millisecond)
				attempt(ts, delivery(dead), false, fault)
			}
		}, nil},
		"errors before a request prove nothing": {func(ts *targets) {
			for range 9 {
				attempt(ts, delivery(dead), false, fault)
				time.Sleep(time.Millisecond)
				attempt(ts, delivery(other), false, fault)
				attempt(ts, delivery(alive), false, holdfast.Permanent(errors.New("there is no secret")))
				attempt(ts, delivery(alive), true, holdfast.Permanent(errors.New("there is no secret")))
			}
		}, nil},
		"a target with a long name": {func(ts *targets) {
			for range 9 {
				attempt(ts, delivery("https://"+strings.Repeat("a", 400)+".example"), false, fault)
			}
		}, nil},
		"a pause": {func(ts *targets) {
			attempt(ts, delivery(dead), false, holdfast.Refused(time.Minute, holdfast.Defer(time.Minute, errors.New("429"))))
		}, []store.TargetReport{{Target: dead, Refused: true, Pause: time.Minute, Cause: "429"}}},
		"messages that fail in succession": {func(ts *targets) { rejections(ts, 1, 13) }, nil},
		"retries of a few messages": {func(ts *targets) {
			for range 10 {
				rejections(ts, 1, 13)
				attempt(ts, delivery(dead), false, nil)
				time.Sleep(2 * time.Second)
			}
		}, nil},
		"messages of many tasks": {func(ts *targets) { rejections(ts, 1, 20) }, []store.TargetReport{
			{Target: dead, Trip: true, Cause: "20 of 20 requests within 30s failed, at last with: 500"},
		}},
		"retries in the next window": {func(ts *targets) {
			rejections(ts, 1, 19)
			time.Sleep(31 * time.Second)
			rejections(ts, 1, 20)
		}, []store.TargetReport{{Target: dead, Trip: true, Cause: "20 of 20 requests within 30s failed, at last with: 500"}}},
		"one message in three": {func(ts *targets) {
			for i := range 300 {
				rejections(ts, i, 1)
				attempt(ts, delivery(dead), false, nil)
				attempt(ts, delivery(dead), false, nil)
			}
		}, nil},
		"messages between faults": {func(ts *targets) {
			for i := range 5 {
				rejections(ts, i, 1)
				attempt(ts, delivery(dead), false, fault)
			}
		}, []store.TargetReport{{Target: dead, Trip: true, Cause: "refused"}}},
		"probes that accuse their messages": {func(ts *targets) {
			for range 3 {
				attempt(ts, delivery(dead), true, holdfast.MessageFault(errors.New("500")))
			}
		}, []store.TargetReport{{Target: dead, Rejected: 3, Cause: "500"}}},
		"probes": {func(ts *targets) {
			attempt(ts, delivery(dead), true, nil)
			attempt(ts, delivery(dead), true, fault)
			attempt(ts, delivery(dead), true, answer)
		}, []store.TargetReport{{Target: dead, Passed: 2, Failed: 1, Cause: "refused"}}},
		"a fault of the worker": {func(ts *targets) {
			attempt(ts, delivery(dead), true, holdfast.WorkerFault(0, errors.New("no descriptors")))
		}, nil},
		"another type": {func(ts *targets) {
			for range 9 {
				attempt(ts, &holdfast.Task{Type: "mail", Payload: []byte(`{"url": "https://dead.example"}`)}, false, fault)
			}
		}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var got reported
				log, hook := logtest.NewNullLogger()
				ts := newTargets(holdfast.DefaultBreakerRules, 50, got.report, log)
				test.play(ts)
				ctx, stop := context.WithCancel(t.Context())
				go ts.run(ctx)
				synctest.Wait()
				stop()
				if fmt.Sprint(got.reports) != fmt.Sprint(test.want) {
					t.Errorf("%s: the reports are %+v, want %+v", name, got.reports, test.want)
				}
				trips := slices.ContainsFunc(test.want, func(r store.TargetReport) bool { return r.Trip || r.Refused })
				if trips != (len(hook.AllEntries()) > 0) {
					t.Errorf("%s: %d lines are logged", name, len(hook.AllEntries()))
				}
			})
		})
	}
}

// While the store does not answer, reports are sent again. Later reports wait, and are sent together.
func TestReportsOutliveAnOutageOfTheStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		got := reported{fail: holdfast.ErrUnavailable}
		log, hook := logtest.NewNullLogger()
		ts := newTargets(holdfast.DefaultBreakerRules, 50, got.report, log)
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		go ts.run(ctx)
		attempt(ts, delivery(dead), true, nil)
		time.Sleep(10 * time.Second)
		for range 3 {
			attempt(ts, delivery(alive), true, nil)
		}
		got.mu.Lock()
		got.fail = nil
		got.mu.Unlock()
		time.Sleep(10 * time.Second)
		synctest.Wait()
		got.mu.Lock()
		defer got.mu.Unlock()
		want := []store.TargetReport{{Target: dead, Passed: 1}, {Target: alive, Passed: 3}}
		if fmt.Sprint(got.reports) != fmt.Sprint(want) || len(hook.AllEntries()) == 0 {
			t.Errorf("after %d failures the reports are %+v, want %+v", len(hook.AllEntries()), got.reports, want)
		}
	})
}

// The result of a probe waits until the store has its report, or a second has passed.
func TestAProbeWaitsForItsReport(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		got := reported{fail: holdfast.ErrUnavailable}
		log, _ := logtest.NewNullLogger()
		ts := newTargets(holdfast.DefaultBreakerRules, 50, got.report, log)
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		go ts.run(ctx)
		end := func() time.Duration {
			began := time.Now()
			ts.end(ts.begin(delivery(dead), true), 0, true, false, holdfast.Refused(time.Minute, errors.New("429")))
			return time.Since(began)
		}
		if waited := end(); waited != probeReportTimeout {
			t.Errorf("without the store, a probe waits for %s", waited)
		}
		got.mu.Lock()
		got.fail = nil
		got.mu.Unlock()
		time.Sleep(10 * time.Second)
		waited := end()
		synctest.Wait()
		got.mu.Lock()
		defer got.mu.Unlock()
		if waited > 2*reportEvery || len(got.reports) != 2 {
			t.Errorf("a probe waits for %s, and the reports are %+v", waited, got.reports)
		}
	})
}

// If the store refuses a report, the report is dropped and the others are sent.
func TestARefusedReportDoesNotStopTheOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		got := reported{fail: errors.New("index row size exceeds the maximum")}
		log, hook := logtest.NewNullLogger()
		ts := newTargets(holdfast.DefaultBreakerRules, 50, got.report, log)
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		go ts.run(ctx)
		attempt(ts, delivery(dead), true, nil)
		time.Sleep(time.Second)
		got.mu.Lock()
		got.fail = nil
		got.mu.Unlock()
		attempt(ts, delivery(alive), true, nil)
		time.Sleep(time.Second)
		synctest.Wait()
		got.mu.Lock()
		defer got.mu.Unlock()
		if len(got.reports) != 1 || got.reports[0].Target != alive || len(hook.AllEntries()) != 1 {
			t.Errorf("the reports are %+v, and %d lines are logged", got.reports, len(hook.AllEntries()))
		}
	})
}

// Targets that fail once each need limited memory, and old ones are replaced.
func TestOnlySoManyTargetsAreSuspected(t *testing.T) {
	synctest.Test(t, onlySoManyTargetsAreSuspected)
}

func onlySoManyTargetsAreSuspected(t *testing.T) {
	ts := newTargets(holdfast.DefaultBreakerRules, 50, nil, nil)
	for i := range maxSuspects + 100 {
		attempt(ts, delivery(fmt.Sprintf("https://t%d.example", i)), false, holdfast.TargetFault(errors.New("refused")))
	}
	if n := len(ts.faults); n != maxSuspects {
		t.Errorf("%d targets are known, want %d", n, maxSuspects)
	}
	time.Sleep(2 * forgetAfter)
	attempt(ts, delivery(dead), false, holdfast.NoAnswer(errors.New("refused")))
	if n := len(ts.faults); n != 1 {
		t.Errorf("after a while, %d targets are known, want 1", n)
	}
}

// The windows of targets need limited memory, too. Answers and time remove them.
func TestOnlySoManyTargetsHaveAWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ts := newTargets(holdfast.DefaultBreakerRules, 50, nil, nil)
		for i := range maxSuspects + 100 {
			target := delivery(fmt.Sprintf("https://t%d.example", i))
			attempt(ts, target, false, holdfast.TargetFault(errors.New("500")))
			attempt(ts, target, false, nil)
		}
		if n := len(ts.windows); n != maxSuspects {
			t.Errorf("%d targets have a window, want %d", n, maxSuspects)
		}
		time.Sleep(time.Minute)
		attempt(ts, delivery("https://t0.example"), false, nil)
		if n := len(ts.windows); n != maxSuspects-1 {
			t.Errorf("after an answer, %d targets have a window, want %d", n, maxSuspects-1)
		}
		time.Sleep(holdfast.MaxBreakerWindow)
		attempt(ts, delivery(dead), false, holdfast.TargetFault(errors.New("500")))
		if n := len(ts.windows); n != 1 {
			t.Errorf("after a while, %d targets have a window, want 1", n)
		}
	})
}

// Each attempt uses the present rules.
func TestRulesOfABreakerChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rules := holdfast.BreakerRules{Attempts: 20, Window: 30 * time.Second}
		ts := newTargets(func() holdfast.BreakerRules { return rules }, 50, nil, nil)
		trips := func() bool { return len(ts.reports) > 0 }
		play := func() {
			clear(ts.reports)
			for range 10 {
				faultsAndAnAnswer(ts, 4)
			}
		}
		if play(); trips() {
			t.Error("without rules, the breaker trips")
		}
		rules.Rate = 70
		if play(); !trips() {
			t.Error("with a rate of 70%, the breaker does not trip")
		}
		rules.Rate = 90
		if play(); trips() {
			t.Error("with a rate of 90%, the breaker trips")
		}
		rules.Faults = 4
		if play(); !trips() {
			t.Error("with four faults in succession, the breaker does not trip")
		}
		rules.Faults, rules.Rate = 5, 0
		if play(); trips() || len(ts.windows) > 0 {
			t.Errorf("without a rate, the breaker trips: %v, and %d targets have a window", trips(), len(ts.windows))
		}
	})
}

// While the process's own network is broken, the window counts nothing. After the network works again, the faults from
// before trip no breaker.
func TestABrokenNetworkFillsNoWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ts := newTargets(func() holdfast.BreakerRules {
			return holdfast.BreakerRules{Rate: 70, Attempts: 20, Window: 30 * time.Second}
		}, 50, nil, nil)
		broken := func(n int) {
			for range n {
				time.Sleep(time.Millisecond)
				attempt(ts, delivery(dead), false, holdfast.NoAnswer(errors.New("unreachable")))
				attempt(ts, delivery(other), false, holdfast.NoAnswer(errors.New("unreachable")))
			}
		}
		for range 5 {
			time.Sleep(time.Millisecond)
			attempt(ts, delivery(alive), false, nil)
			broken(50)
		}
		if len(ts.reports) > 0 {
			t.Errorf("the reports are %+v", ts.reports)
		}
		for range 20 {
			time.Sleep(time.Millisecond)
			attempt(ts, delivery(alive), false, nil)
			broken(1)
		}
		if len(ts.reports) != 2 {
			t.Errorf("while another target answers, the reports are %+v", ts.reports)
		}
	})
}
