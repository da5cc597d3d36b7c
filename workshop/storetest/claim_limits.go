package storetest

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/internal/message"
	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/store/desk"
)

// ClaimLimits is a store for BenchmarkClaimLimits.
type ClaimLimits struct {
	Store desk.Store
	Exec  func(statement string) // executes SQL
	Now   string                 // the SQL for the store's time
}

// limitScopes has functions that return the scope of the limit number n. Such a limit concerns none of the claimed
// tasks.
var limitScopes = map[string]func(n int) store.Scope{
	"keys":    func(n int) store.Scope { return store.Scope{Subject: store.Subject{Key: fmt.Sprint("key-", n)}} },
	"types":   func(n int) store.Scope { return store.Scope{Subject: store.Subject{Type: fmt.Sprint("type-", n)}} },
	"targets": func(n int) store.Scope { return store.Scope{Subject: store.Subject{Target: otherTarget(n)}} },
	"per key": func(n int) store.Scope {
		return store.Scope{Subject: store.Subject{Type: fmt.Sprint("type-", n)}, Per: store.PerKey}
	},
	"per target": func(n int) store.Scope {
		return store.Scope{Subject: store.Subject{Queue: fmt.Sprint("queue-", n)}, Per: store.PerTarget}
	},
	"mixed": func(n int) store.Scope {
		switch subject := (store.Subject{Type: fmt.Sprint("type-", n)}); n % 5 {
		case 0:
			return store.Scope{Subject: subject, Per: store.PerKey}
		case 1:
			return store.Scope{Subject: store.Subject{Queue: fmt.Sprint("queue-", n)}, Per: store.PerTarget}
		case 2:
			return store.Scope{Subject: store.Subject{Target: otherTarget(n)}}
		case 3:
			return store.Scope{Subject: store.Subject{Queue: holdfast.DefaultQueue, Key: fmt.Sprint("key-", n)}}
		default:
			return store.Scope{Subject: subject}
		}
	},
}

func otherTarget(n int) string { return fmt.Sprintf("https://%d.example:443", n) }

// BenchmarkClaimLimits measures a claim of 100 tasks that no limit concerns, in stores with 0, 10, 100 and 1,000
// limits. It reports the time in milliseconds, and the median divided by the median without limits. In each iteration,
// each store claims once.
func BenchmarkClaimLimits(b *testing.B, open func(*testing.B) ClaimLimits) {
	const page = 100
	counts := []int{0, 10, 100, 1000}
	tasks := map[string]holdfast.NewTask{
		"plain": {Type: "bench", Payload: []byte(`{"user": 12345}`)},
		"http":  {Type: holdfast.TypeHTTP, Key: "key", Payload: []byte(`{"user": 12345, "url": "https://example.com/hook"}`)},
	}
	for _, limits := range []string{"keys", "types", "targets", "per key", "per target", "mixed"} {
		for _, task := range []string{"plain", "http"} {
			for _, attempts := range []int{1, 2} {
				b.Run(fmt.Sprintf("limits=%s/tasks=%s/attempts=%d", limits, task, attempts), func(b *testing.B) {
					workers := make([]claimWorker, len(counts))
					for i, n := range counts {
						workers[i] = newClaimWorker(b, open(b), tasks[task], attempts, limitScopes[limits], n)
					}
					times := make([][]float64, len(counts))
					for round := 0; b.Loop(); round++ {
						for i := range workers {
							i = (i + round) % len(workers)
							times[i] = append(times[i], workers[i].claim(b, page))
						}
					}
					for i, n := range counts {
						slices.Sort(times[i])
						b.ReportMetric(quantileOf(times[i], 0.5), fmt.Sprintf("p50-%d-ms", n))
						b.ReportMetric(quantileOf(times[i], 0.9), fmt.Sprintf("p90-%d-ms", n))
						if n > 0 {
							b.ReportMetric(quantileOf(times[i], 0.5)/quantileOf(times[0], 0.5), fmt.Sprintf("x-%d", n))
						}
					}
					b.ReportMetric(0, "ns/op") // hides ns/op, which has no meaning here
				})
			}
		}
	}
}

func quantileOf(sorted []float64, q float64) float64 { return sorted[int(q*float64(len(sorted)-1))] }

// claimWorker claims the tasks of a store.
type claimWorker struct {
	ClaimLimits
	id       holdfast.WorkerID
	task     holdfast.NewTask
	attempts int // number of different attempt numbers in a page
	tickets  []message.Ticket
}

func newClaimWorker(b *testing.B, s ClaimLimits, task holdfast.NewTask, attempts int, scope func(int) store.Scope, limits int) claimWorker {
	b.Helper()
	id, err := s.Store.RegisterWorker(b.Context(), store.WorkerInfo{Name: "bench"}, time.Hour)
	if err != nil {
		b.Fatal(err)
	}
	task.Queue, task.MaxAttempts = holdfast.DefaultQueue, 10
	var rows []string
	for n := range limits - 1 {
		kind, c := "limit", scope(n)
		if c.Per != store.PerScope {
			kind += " per " + string(c.Per)
		}
		rows = append(rows, fmt.Sprintf("('%s', '%s', '%s', '%s', '%s', 'bench', 'cli', 1, 1000000, %s)", kind, c.Queue, c.Type, c.Key, c.Target, s.Now))
	}
	if len(rows) > 0 { // one statement, because SetLimit waits for claims
		s.Exec("insert into gates (kind, queue, type, key, target, actor, surface, rate_count, rate_per, closed_at) values " + strings.Join(rows, ", "))
	}
	if limits > 0 {
		if _, err := s.Store.SetLimit(b.Context(), store.Actor{Name: "bench", Surface: store.CommandLine}, store.Limit{Scope: scope(limits), Concurrency: 1}.Change()); err != nil {
			b.Fatal(err)
		}
	}
	return claimWorker{s, id, task, attempts, nil}
}

// claim claims a page and returns how many milliseconds that took.
func (w *claimWorker) claim(b *testing.B, page int) float64 {
	if len(w.tickets) == 0 {
		tasks := slices.Repeat([]holdfast.NewTask{w.task}, 10*page)
		inserted, err := w.Store.Insert(b.Context(), tasks, time.Hour)
		if err != nil {
			b.Fatal(err)
		}
		w.tickets = inserted.Entries[0].Tickets
		if w.attempts == 2 {
			w.Exec("update tasks set attempt = 2 where state = 'ready' and id % 2 = 0")
			for i := range w.tickets {
				if w.tickets[i].Task%2 == 0 {
					w.tickets[i].Attempt = 2
				}
			}
		}
	}
	began := time.Now()
	claims, err := w.Store.Claim(b.Context(), w.id, store.AnyOf(w.task.Type), w.tickets[:page], store.IntoExecutors)
	took := time.Since(began)
	if err != nil {
		b.Fatal(err)
	}
	for _, c := range claims {
		if c.Verdict != store.Claimed {
			b.Fatalf("the answer of a claim is %+v", c)
		}
	}
	w.tickets = w.tickets[page:]
	return 1000 * took.Seconds()
}
