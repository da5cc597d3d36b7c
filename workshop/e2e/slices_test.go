package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/app"
	"github.com/holdfastq/holdfast/internal/plan"
	"github.com/holdfastq/holdfast/queue"
	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/workshop/slow"
)

// pullerVariable makes the program of the tests a puller, and has its settings.
const pullerVariable = "E2E_PULLER"

// puller are the settings of a program that pulls the shops of a platform.
type puller struct {
	Platform string
	Shops    []shop
}

// runPuller runs the program that the tests start and kill.
func runPuller(settings string) error {
	var p puller
	if err := json.Unmarshal([]byte(settings), &p); err != nil {
		return err
	}
	log := logrus.New()
	q, err := queue.Open(context.Background(), queue.Logger(log))
	if err != nil {
		return err
	}
	defer q.Close()
	if err := queue.HandleSlices(q, "orders.pull", p.pull, queue.Timeout(time.Minute), queue.Queue("pulls")); err != nil {
		return err
	}
	for _, s := range p.Shops {
		result, err := q.SetSource(context.Background(), queue.Source{
			Name: s.Name, Type: "orders.pull", Every: s.Every, Overlap: s.Overlap, Lag: s.Lag, Start: queue.From(s.Begin), InFlight: s.InFlight, MaxAttempts: 100,
		})
		if err != nil {
			return err
		}
		log.WithField("source", s.Name).Info(string(result.Change))
	}
	return q.Run(context.Background())
}

// pull reads all pages of a slice and stores the records.
func (p *puller) pull(ctx context.Context, task holdfast.Task, s queue.Slice) error {
	done := pull{Task: task.ID, Source: s.Source, From: s.From, To: s.To}
	for number, more := 0, true; more; {
		query := url.Values{
			"shop": {s.Source}, "from": {s.From.Format(time.RFC3339Nano)}, "to": {s.To.Format(time.RFC3339Nano)}, "page": {strconv.Itoa(number)},
		}
		var answer page
		if err := p.call(ctx, http.MethodGet, "/records?"+query.Encode(), nil, &answer); err != nil {
			return err
		}
		done.Records = append(done.Records, answer.Records...)
		number, more = answer.Next, answer.Next > 0
	}
	body, err := json.Marshal(done)
	if err != nil {
		return err
	}
	return p.call(ctx, http.MethodPost, "/pulls", body, nil)
}

// call calls the platform. If the platform throttles, the task waits and keeps its attempt.
func (p *puller) call(ctx context.Context, method, path string, body []byte, into any) error {
	r, err := http.NewRequestWithContext(ctx, method, p.Platform+path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	switch {
	case answer.StatusCode == http.StatusTooManyRequests:
		seconds, err := strconv.Atoi(answer.Header.Get("Retry-After"))
		if err != nil {
			return err
		}
		return holdfast.Defer(time.Duration(seconds)*time.Second, fmt.Errorf("the platform answers %s", answer.Status))
	case answer.StatusCode != http.StatusOK:
		return fmt.Errorf("the platform answers %s", answer.Status)
	case into == nil:
		return nil
	}
	return json.NewDecoder(answer.Body).Decode(into)
}

// startPuller starts a puller, and returns a function that kills it with kill -9. The end of the test kills it, too.
func (w *world) startPuller(t *testing.T, p *platform, shops []shop) (kill func()) {
	t.Helper()
	settings, err := json.Marshal(puller{p.URL, shops})
	if err != nil {
		t.Fatal(err)
	}
	path, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	cmd := exec.Command(path)
	cmd.Env, cmd.Stderr = append(w.environment(), pullerVariable+"="+string(settings)), &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = cmd.Wait() // the state says how it ended
		if cmd.ProcessState.Exited() || strings.Contains(log.String(), "DATA RACE") {
			p.fail(fmt.Sprintf("a puller ended: %s\n%s", cmd.ProcessState, log.String()))
		}
	}()
	kill = sync.OnceFunc(func() {
		_ = cmd.Process.Kill() // it fails if the process has ended
		<-ended
	})
	t.Cleanup(kill)
	return kill
}

// Programs that pull ten sources of a platform are killed with kill -9, and the platform throttles and fails calls.
// Eight sources have much to catch up with; two begin a new slice each second. No slice is missed or stored twice,
// every record of the platform is pulled, and neighboring pulls overlap by exactly the setting.
func TestSlicesSurviveKills(t *testing.T) { onBothBackends(t, slicesSurviveKills) }

func slicesSurviveKills(t *testing.T, w *world) {
	w.lease = shortLease()
	const sources = 10
	each, kills, workers := slow.Pick(60, 1000), slow.Pick(2, 12), 4
	if w.embedded {
		workers = 1
	}
	shops := make([]shop, sources)
	now := time.Now().Truncate(time.Microsecond)
	for i := range shops {
		s := shop{Name: fmt.Sprintf("shop-%d", i), Every: 24 * time.Hour, Overlap: time.Duration(i) * 7 * time.Minute, Lag: time.Hour, InFlight: 4 + 3*i}
		if i < 2 {
			s.Every, s.Overlap, s.Lag = time.Second, time.Duration(i+1)*300*time.Millisecond, 2*time.Second
		}
		// The last slice has ended a minute ago. So no further slice of a day is stored during the test.
		s.Begin = now.Add(-s.Lag - time.Duration(each)*s.Every - time.Minute)
		if i < 2 {
			s.Begin = now.Add(-time.Duration(each-5) * s.Every)
		}
		shops[i] = s
	}
	p := newPlatform(t, shops)
	began := time.Now()
	var live []func()
	start := func() { live = append(live, w.startPuller(t, p, shops)) }
	for range workers {
		start()
	}
	for kill := range kills {
		p.await(t, (kill+1)*sources*each/(kills+2))
		live[0]()
		live = live[1:]
		start()
	}
	for _, s := range shops {
		w.awaitDone(t, p, s, s.Begin.Add(time.Duration(each)*s.Every))
	}
	took := time.Since(began)

	ends := make(map[string]time.Time)
	for _, s := range shops {
		last, _, err := w.DeleteSource(t.Context(), store.Actor{Name: "anna", Surface: store.CommandLine}, s.Name)
		if err != nil {
			t.Fatal(err)
		}
		ends[s.Name] = last.Progress.Next
	}
	tasks := w.tasks(t)
	w.awaitCount(t, holdfast.Done, int64(len(tasks)))
	for _, kill := range live {
		kill()
	}
	pulls := p.await(t, 0)
	begins, records := make(map[string][]time.Time), 0
	for _, task := range tasks {
		source, from, ok := plan.SliceOrigin(task.Unique)
		if !ok {
			t.Errorf("task %s has the unique key %q", task.ID, task.Unique)
		}
		begins[source] = append(begins[source], from)
	}
	for _, s := range shops {
		requireContiguous(t, s, begins[s.Name], ends[s.Name], each)
		requireOverlap(t, s, pulls, ends[s.Name])
		records += requireRecords(t, s, pulls, ends[s.Name])
		created, err := w.Store.AuditLog(t.Context(), store.AuditFilter{Subject: store.PlanSubject(store.SourceKind, s.Name), Limit: 10})
		if err != nil || len(created) != 2 {
			t.Errorf("%s has the audit log %+v, want its creation and its end: %v", s.Name, created, err)
		}
	}
	if e, err := w.Explain(t.Context(), tasks[0].ID); err != nil || e.Slice == nil || !strings.Contains(e.Slice.Text, "; anna deleted the source") {
		t.Errorf("the explanation is %+v: %v", e.Slice, err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, fault := range []string{"throttled", "failed", "dropped", "cut"} {
		if p.faults[fault] == 0 {
			t.Errorf("no call was %s, so this test proves nothing", fault)
		}
	}
	t.Logf("%d slices with %d records were pulled in %s by %d processes, with %d kills; %d pulls were stored in %d calls, with the faults %v",
		len(tasks), records, took.Round(100*time.Millisecond), workers, kills, len(pulls), p.calls, p.faults)
}

// awaitDone waits until a source is done through a time.
func (w *world) awaitDone(t *testing.T, p *platform, s shop, through time.Time) {
	t.Helper()
	var last app.Source
	problem := func() string {
		return fmt.Sprintf("%s is not done through %s: %+v", s.Name, through, last.Progress)
	}
	pollFor(t, 5*slow.Patience(), problem, func(ctx context.Context) bool {
		p.await(t, 0) // it fails if a puller has ended
		found, err := w.Source(ctx, s.Name)
		last = found
		return err == nil && !found.Progress.DoneThrough.Before(through)
	})
}

// requireContiguous checks the begins of the stored slices: from the begin of the source to its end, each once.
func requireContiguous(t *testing.T, s shop, begins []time.Time, end time.Time, atLeast int) {
	t.Helper()
	slices.SortFunc(begins, time.Time.Compare)
	want := s.Begin
	for _, begin := range begins {
		if !begin.Equal(want) {
			t.Errorf("%s has a slice that begins at %s, want %s", s.Name, begin, want)
			return
		}
		want = want.Add(s.Every)
	}
	if !want.Equal(end) || len(begins) < atLeast {
		t.Errorf("%s has %d slices up to %s, want at least %d and up to %s", s.Name, len(begins), want, atLeast, end)
	}
}

// requireOverlap checks the intervals of the pulls: those of neighboring slices overlap by exactly the setting.
func requireOverlap(t *testing.T, s shop, pulls []pull, end time.Time) {
	t.Helper()
	ends := make(map[time.Time]time.Time)
	for _, p := range pulls {
		if p.Source != s.Name {
			continue
		}
		if to, again := ends[p.From.UTC()]; again && !to.Equal(p.To) {
			t.Errorf("%s was pulled from %s up to %s and up to %s", s.Name, p.From, to, p.To)
		}
		ends[p.From.UTC()] = p.To
	}
	n := 0
	for begin := s.Begin; begin.Before(end); begin = begin.Add(s.Every) {
		n++
		if to := ends[begin.Add(-s.Overlap).UTC()]; !to.Equal(begin.Add(s.Every)) {
			t.Errorf("the slice of %s at %s was pulled up to %s", s.Name, begin, to)
		}
	}
	if len(ends) != n {
		t.Errorf("%s was pulled in %d intervals, want %d", s.Name, len(ends), n)
	}
}

// requireRecords checks that the pulls have every record of the shop, and returns their number.
func requireRecords(t *testing.T, s shop, pulls []pull, end time.Time) int {
	t.Helper()
	pulled := make(map[int64]bool)
	for _, p := range pulls {
		if p.Source == s.Name {
			for _, r := range p.Records {
				pulled[r] = true
			}
		}
	}
	n := int64(0)
	for ; s.record(n).Before(end); n++ {
		if !pulled[n] {
			t.Errorf("record %d of %s at %s was not pulled", n, s.Name, s.record(n))
		}
	}
	return int(n)
}
