package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/workshop/slow"
)

// shop is a source of the platform, with the settings of its slices.
type shop struct {
	Name                string
	Begin               time.Time
	Every, Overlap, Lag time.Duration
	InFlight            int
}

// record returns the time of a record. Each second slice begins with a record.
func (s *shop) record(n int64) time.Time { return s.Begin.Add(time.Duration(n) * s.Every * 2 / 7) }

// between returns the records from one time up to another that the shop has at the time now. New records appear with a
// delay that is shorter than the lag.
func (s *shop) between(from, to, now time.Time) (records []int64) {
	if visible := now.Add(-s.Lag / 2); to.After(visible) {
		to = visible
	}
	n := max(0, int64(from.Sub(s.Begin)/(s.Every*2/7))-1)
	for ; s.record(n).Before(to); n++ {
		if !s.record(n).Before(from) {
			records = append(records, n)
		}
	}
	return records
}

// pull is what a handler has stored for one slice, after it has read all of its pages.
type pull struct {
	Task     holdfast.TaskID
	Source   string
	From, To time.Time
	Records  []int64
}

// page is an answer of the platform.
type page struct {
	Records []int64
	Next    int // 0 on the last page
}

const pageSize = 2

// platform is a system with records that can be pulled page by page. It throttles some of the calls, and fails some. It
// also keeps what the handlers have stored.
type platform struct {
	*httptest.Server
	shops map[string]shop

	mu      sync.Mutex
	calls   int
	faults  map[string]int
	pulls   []pull
	problem string        // of a process
	changed chan struct{} // closed and replaced when a handler stores a pull, and when there is a problem
}

// newPlatform starts a platform that ends with the test.
func newPlatform(t *testing.T, shops []shop) *platform {
	t.Helper()
	p := &platform{shops: make(map[string]shop), faults: make(map[string]int), changed: make(chan struct{})}
	for _, s := range shops {
		p.shops[s.Name] = s
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /records", p.list)
	mux.HandleFunc("POST /pulls", p.keep)
	p.Server = httptest.NewServer(mux)
	t.Cleanup(func() {
		p.CloseClientConnections()
		p.Close()
	})
	return p
}

// fault reports whether the call must fail, and fails it. The calls fail in turn, so no task fails all of its attempts.
func (p *platform) fault(w http.ResponseWriter) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.calls++
	switch {
	case p.calls%23 == 7:
		p.faults["throttled"]++
		w.Header().Set("Retry-After", "1")
		w.WriteHeader(http.StatusTooManyRequests)
	case p.calls%29 == 5:
		p.faults["failed"]++
		w.WriteHeader(http.StatusInternalServerError)
	case p.calls%31 == 11:
		p.faults["dropped"]++
		panic(http.ErrAbortHandler)
	case p.calls%37 == 13:
		p.faults["cut"]++
		w.Header().Set("Content-Length", "1000")
		fmt.Fprint(w, `{"Records": [1,`)
		panic(http.ErrAbortHandler)
	default:
		return false
	}
	return true
}

// list answers with a page of the records of a shop.
func (p *platform) list(w http.ResponseWriter, r *http.Request) {
	if p.fault(w) {
		return
	}
	s, ok := p.shops[r.FormValue("shop")]
	from, fromErr := time.Parse(time.RFC3339Nano, r.FormValue("from"))
	to, toErr := time.Parse(time.RFC3339Nano, r.FormValue("to"))
	number, numberErr := strconv.Atoi(r.FormValue("page"))
	if !ok || fromErr != nil || toErr != nil || numberErr != nil {
		http.Error(w, "wrong query", http.StatusBadRequest)
		return
	}
	var answer page
	answer.Records = s.between(from, to, time.Now())
	answer.Records = answer.Records[min(number*pageSize, len(answer.Records)):]
	if len(answer.Records) > pageSize {
		answer = page{answer.Records[:pageSize], number + 1}
	}
	_ = json.NewEncoder(w).Encode(answer) // the handler that has gone pulls again
}

// keep stores a pull. A fault may make the handler store it again.
func (p *platform) keep(w http.ResponseWriter, r *http.Request) {
	var done pull
	if err := json.NewDecoder(r.Body).Decode(&done); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	p.update(func() { p.pulls = append(p.pulls, done) })
	p.fault(w)
}

// update calls change with the lock held, and notifies await.
func (p *platform) update(change func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	change()
	close(p.changed)
	p.changed = make(chan struct{})
}

// fail makes await fail the test.
func (p *platform) fail(problem string) { p.update(func() { p.problem = problem }) }

// await waits until handlers have stored more than n pulls, and returns the pulls.
func (p *platform) await(t *testing.T, n int) []pull {
	t.Helper()
	timer := time.NewTimer(slow.Patience())
	defer timer.Stop()
	for {
		p.mu.Lock()
		pulls, changed, problem := p.pulls[:len(p.pulls):len(p.pulls)], p.changed, p.problem
		p.mu.Unlock()
		if problem != "" {
			t.Fatal(problem)
		}
		if len(pulls) > n {
			return pulls
		}
		select {
		case <-changed:
		case <-timer.C:
			t.Fatalf("%d pulls are stored, want more than %d", len(pulls), n)
		}
	}
}
