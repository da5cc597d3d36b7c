package benchmarks

import (
	"encoding/json"
	"flag"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/store"
)

var (
	badGood = flag.Int("bad.good", 500, "BenchmarkBadMessages: number of good messages behind the bad ones")
	badMany = flag.Int("bad.many", 5000, "BenchmarkBadMessages: number of bad messages in the larger condition")
	badMix  = flag.Int("bad.mix", 10_000, "BenchmarkBadMessages: number of messages of which each third is bad")
	badDown = flag.Duration("bad.down", 30*time.Second, "BenchmarkBadMessages: how long a receiver is down")
)

// receiver is a target that answers 500 to a request for /bad, and 200 to others while it works.
type receiver struct {
	listener net.Listener
	down     atomic.Int32 // the status of each answer, -1 for a reset connection, or 0 if the receiver works
	good     atomic.Int64 // good messages delivered
	requests atomic.Int64 // connections or requests while it is down
}

// newReceiver starts a receiver that ends with the benchmark.
func newReceiver(b *testing.B) *receiver {
	b.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	r := &receiver{listener: listener}
	server := &http.Server{Handler: r, ReadHeaderTimeout: time.Minute}
	go func() { _ = server.Serve(r) }()
	b.Cleanup(func() { _ = server.Close() })
	return r
}

// Accept implements net.Listener. It resets the connections of a receiver that is down.
func (r *receiver) Accept() (net.Conn, error) {
	for {
		connection, err := r.listener.Accept()
		if err != nil || r.down.Load() != -1 {
			return connection, err
		}
		r.requests.Add(1)
		_ = connection.(*net.TCPConn).SetLinger(0)
		_ = connection.Close()
	}
}

// Close implements net.Listener.
func (r *receiver) Close() error { return r.listener.Close() }

// Addr implements net.Listener.
func (r *receiver) Addr() net.Addr { return r.listener.Addr() }

func (r *receiver) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	status := int(r.down.Load())
	switch {
	case status > 0:
		r.requests.Add(1)
		w.WriteHeader(status)
	case strings.HasPrefix(request.URL.Path, "/bad"):
		w.WriteHeader(http.StatusInternalServerError)
	default:
		r.good.Add(1)
	}
}

// tasks returns n tasks for the receiver. bad reports whether the task with a number has a bad message.
func (r *receiver) tasks(b *testing.B, n int, bad func(int) bool) []holdfast.NewTask {
	b.Helper()
	tasks := make([]holdfast.NewTask, n)
	for i := range tasks {
		path := "good"
		if bad(i) {
			path = "bad"
		}
		payload, err := json.Marshal(map[string]any{"url": fmt.Sprintf("http://%s/%s", r.Addr(), path), "body": "hello"})
		if err != nil {
			b.Fatal(err)
		}
		tasks[i] = holdfast.NewTask{Type: holdfast.TypeHTTP, Payload: payload}
	}
	return tasks
}

// send stores tasks.
func (s *txFixture) send(b *testing.B, tasks []holdfast.NewTask) {
	b.Helper()
	for len(tasks) > 0 {
		n := min(len(tasks), 1000)
		if _, err := s.producer.EnqueueMany(b.Context(), tasks[:n]); err != nil {
			b.Fatal(err)
		}
		tasks = tasks[n:]
	}
}

// awaitGood waits until n good messages have been delivered, and returns the time since began.
func (r *receiver) awaitGood(b *testing.B, n int, began time.Time) time.Duration {
	b.Helper()
	for r.good.Load() < int64(n) {
		if time.Since(began) > 5*time.Minute {
			b.Fatalf("%d of %d good messages were delivered", r.good.Load(), n)
		}
		time.Sleep(time.Millisecond)
	}
	return time.Since(began)
}

func all(int) bool  { return true }
func none(int) bool { return false }

// BenchmarkBadMessages measures what messages that a receiver cannot process cost the others, with breakers and
// without: the time from the first bad message until all good ones behind it are delivered, and the rate of good ones
// among bad ones. It also measures how many requests a receiver gets after its breaker has tripped while it is down for
// a time, and the time from its return to the first delivery.
func BenchmarkBadMessages(b *testing.B) {
	const allow = "HOLDFAST_WEBHOOK_ALLOW_CIDRS=127.0.0.0/8"
	for _, backend := range []string{"servers", "file"} {
		for _, bad := range []int{50, *badMany} {
			b.Run(fmt.Sprintf("%s/%d-first", backend, bad), func(b *testing.B) {
				onAndOff(b, backend, allow, func(s *txFixture) float64 {
					r := newReceiver(b)
					began := time.Now()
					s.send(b, r.tasks(b, bad, all))
					s.send(b, r.tasks(b, *badGood, none))
					return r.awaitGood(b, *badGood, began).Seconds()
				}, "s")
			})
		}
		b.Run(backend+"/mixed", func(b *testing.B) {
			onAndOff(b, backend, allow, func(s *txFixture) float64 {
				r := newReceiver(b)
				tasks := r.tasks(b, *badMix, func(i int) bool { return i%3 == 0 })
				good := *badMix - (*badMix+2)/3
				began := time.Now()
				s.send(b, tasks)
				return float64(good) / r.awaitGood(b, good, began).Seconds()
			}, "good/s")
		})
		for name, status := range map[string]int32{"reset": -1, "503": 503, "500": 500} {
			b.Run(backend+"/down-"+name, func(b *testing.B) {
				s := fixtures(b, backend, 1, allow)[0]
				for b.Loop() {
					r := newReceiver(b)
					r.down.Store(status)
					s.send(b, r.tasks(b, 50, none))
					s.awaitTrip(b)
					r.requests.Store(0) // a worker has claimed the others already
					s.send(b, r.tasks(b, *badGood, none))
					time.Sleep(*badDown)
					requests := r.requests.Load()
					r.down.Store(0)
					returned := time.Now()
					s.logTrips(b)
					b.ReportMetric(float64(requests), "requests")
					b.ReportMetric(r.awaitGood(b, 1, returned).Seconds(), "first-s")
					b.ReportMetric(r.awaitGood(b, *badGood-int(requests), returned).Seconds(), "most-s")
				}
				b.ReportMetric(0, "ns/op") // hides ns/op, which has no meaning here
			})
		}
	}
}

// awaitTrip waits until a breaker has tripped.
func (s *txFixture) awaitTrip(b *testing.B) {
	b.Helper()
	for began := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		gates, err := s.backend.Store.Gates(b.Context())
		if err != nil || time.Since(began) > time.Minute {
			b.Fatalf("no breaker has tripped: %v", err)
		}
		if len(gates) > 0 {
			return
		}
	}
}

// logTrips logs why breakers have tripped.
func (s *txFixture) logTrips(b *testing.B) {
	b.Helper()
	trips, err := s.backend.Store.AuditLog(b.Context(), store.AuditFilter{Action: store.ActionPause, Limit: 20})
	if err != nil {
		b.Fatal(err)
	}
	for _, trip := range trips {
		b.Logf("%s: %s: %s", trip.At.Format(time.TimeOnly), trip.Subject, trip.Reason)
	}
}

// onAndOff measures with breakers and without, one after the other and each with a process of its own, so that the
// retries of one do not delay the other.
func onAndOff(b *testing.B, backend, allow string, measure func(*txFixture) float64, unit string) {
	b.Helper()
	for name, faults := range map[string]string{"on": "5", "off": "0"} {
		b.Run(name, func(b *testing.B) {
			s := fixtures(b, backend, 1, allow, "HOLDFAST_WEBHOOK_BREAKER_FAULTS="+faults)[0]
			for b.Loop() {
				b.ReportMetric(measure(s), unit)
				s.logTrips(b)
			}
			b.ReportMetric(0, "ns/op") // hides ns/op, which has no meaning here
		})
	}
}
