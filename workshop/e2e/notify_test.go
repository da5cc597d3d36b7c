package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/internal/operate"
	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/workshop/slow"
)

// announcement is the body of a call that announces events.
type announcement struct {
	Type   string `json:"type"`
	Events []struct {
		Kind  store.NoticeKind `json:"kind"`
		Group struct {
			Host string `json:"host"`
		} `json:"group"`
		Operation struct {
			ID    string               `json:"id"`
			State store.OperationState `json:"state"`
		} `json:"operation"`
		Queue struct {
			Queue string `json:"queue"`
		} `json:"queue"`
	} `json:"events"`
}

// receiver records the announcements that it has accepted, by webhook-id.
type receiver struct {
	*httptest.Server
	mu       sync.Mutex
	down     bool
	refused  int
	accepted map[string]announcement
	events   []string // the kind and the host, the operation with its state, or the queue, in the order of the calls
	problems []string
}

func newReceiver(t *testing.T, key string) *receiver {
	t.Helper()
	verifier, err := standardwebhooks.NewWebhook(key)
	if err != nil {
		t.Fatal(err)
	}
	r := &receiver{accepted: make(map[string]announcement)}
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		body, err := io.ReadAll(request.Body)
		if err == nil {
			err = verifier.Verify(body, request.Header)
		}
		var a announcement
		if err == nil {
			err = json.Unmarshal(body, &a)
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		if err != nil {
			r.problems = append(r.problems, err.Error())
		}
		if r.down {
			r.refused++
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		id := request.Header.Get("webhook-id")
		if _, repeated := r.accepted[id]; repeated {
			return // a delivery may be repeated, with the same id
		}
		r.accepted[id] = a
		for _, e := range a.Events {
			r.events = append(r.events, strings.Join(strings.Fields(
				fmt.Sprint(e.Kind, " ", e.Group.Host, " ", e.Operation.ID, " ", e.Operation.State, " ", e.Queue.Queue)), " "))
		}
	}))
	t.Cleanup(r.Close)
	return r
}

func (r *receiver) setDown(down bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.down = down
}

// await waits until n events were announced, and returns all of them.
func (r *receiver) await(t *testing.T, n int) []string {
	t.Helper()
	var events []string
	poll(t, func() string { return fmt.Sprintf("%d events were announced, want %d", len(events), n) }, func(context.Context) bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		events = slices.Clone(r.events)
		return len(events) >= n
	})

	return events
}

// announcing returns a function that starts two processes, or one on a file. They announce events to the receiver.
func (w *world) announcing(t *testing.T, r *receiver, more ...string) (start func() []*process) {
	t.Helper()
	settings := append([]string{
		"HOLDFAST_NOTIFY_URL=" + r.URL, "HOLDFAST_NOTIFY_SECRET=hook", "HOLDFAST_TYPES_HTTP_MAX_ATTEMPTS=100000",
		"HOLDFAST_WEBHOOK_SECRETS_HOOK=" + notifyKey, "HOLDFAST_WEBHOOK_SECRET_HOSTS_HOOK=127.0.0.1",
	}, more...)
	processes := 2
	if w.embedded {
		processes = 1
	}
	// The first search for events begins before the first event.
	if _, err := w.Store.Announce(t.Context(), store.NoticeFilter{Limit: 1}, nil); err != nil {
		t.Fatal(err)
	}
	return func() (all []*process) {
		for range processes {
			all = append(all, w.serve(t, settings))
		}
		return all
	}
}

// notifyKey signs the announcements.
const notifyKey = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSwMfKQ9r8G"

// dying returns a task that dies at once, because requests to private addresses are refused.
func dying(host string) holdfast.NewTask {
	return holdfast.NewTask{Type: "http", Payload: fmt.Appendf(nil, `{"url":"http://%s/<b>"}`, host)}
}

func TestEventsAreAnnounced(t *testing.T) { onAFileFirst(t, eventsAreAnnounced) }

// eventsAreAnnounced lets 1,000 tasks die of many causes while the receiver is down: 10,000 with all slow tests and
// without the race detector. On servers two janitors run. Each group is announced once, also after a restart.
func eventsAreAnnounced(t *testing.T, w *world) {
	const groups = 250
	perGroup := slow.Pick(4, 40)
	if len(raceFlags) > 0 { // the race detector makes a death on a file many times slower
		perGroup = 4
	}
	r := newReceiver(t, notifyKey)
	r.setDown(true)
	start := w.announcing(t, r)
	running := start()
	processes := len(running)
	began := time.Now()
	var tasks []holdfast.NewTask
	for n := range groups * perGroup {
		tasks = append(tasks, dying(fmt.Sprintf("10.1.0.%d", n%groups)))
	}
	p := w.Producer(nil)
	defer p.Close()
	if _, err := p.EnqueueMany(t.Context(), tasks); err != nil {
		t.Fatal(err)
	}
	var dead int64
	poll(t, func() string { return fmt.Sprintf("%d tasks are dead", dead) }, func(ctx context.Context) bool {
		found, err := w.Store.DeathGroups(ctx, store.DeathFilter{Limit: 10 * groups})
		dead = 0
		for _, g := range found {
			dead += g.Tasks
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		return err == nil && dead == int64(groups*perGroup) && r.refused > 0
	})

	minutes := 1 + int(time.Since(began)/time.Minute)
	lines := 0
	for _, process := range running {
		for _, line := range process.Log(100_000) {
			if strings.Contains(line, "task is dead") {
				lines++
			}
		}
	}
	if most := (groups + 1) * (minutes + 1) * processes; lines == 0 || lines > most {
		t.Errorf("%d lines about dead tasks in %d minutes, want at most %d", lines, minutes, most)
	}
	r.setDown(false)
	events := r.await(t, groups)
	if len(r.accepted) > 12*(minutes+1) {
		t.Errorf("%d calls in %d minutes", len(r.accepted), minutes)
	}

	// After a restart nothing is repeated, and the next new group is announced alone.
	for _, process := range running {
		process.Kill()
	}
	w.enqueue(t, 1, dying("10.1.0.7"))
	w.enqueue(t, 1, dying("10.2.0.1"))
	start()
	events = r.await(t, len(events)+1)

	// Deaths of the tasks that announce events are not announced.
	own := dying("10.3.0.1")
	own.Queue = "notify"
	id := w.enqueue(t, 1, own)[0]
	w.awaitTask(t, id, "dead", in(holdfast.Dead))

	// A task dies with the cause of a resolved group.
	found, err := w.Store.DeathGroups(t.Context(), store.DeathFilter{Limit: 10 * groups})
	if err != nil {
		t.Fatal(err)
	}
	resolved := found[slices.IndexFunc(found, func(g store.DeathGroup) bool { return g.Host == "10.2.0.1" })]
	_, err = w.Store.ChangeDeathGroup(t.Context(), store.Actor{Name: "anna", Surface: store.CommandLine},
		store.GroupChange{Fingerprint: resolved.Fingerprint, Action: store.ActionResolve})
	if err != nil {
		t.Fatal(err)
	}
	w.enqueue(t, 2, dying("10.2.0.1"))
	events = r.await(t, len(events)+1)

	slices.Sort(events)
	var want []string
	for n := range groups {
		want = append(want, fmt.Sprintf("group_appeared 10.1.0.%d", n))
	}
	want = append(want, "group_appeared 10.2.0.1", "group_returned 10.2.0.1")
	slices.Sort(want)
	if !slices.Equal(events, want) {
		t.Errorf("announced %d events, want %d: %q", len(events), len(want), events)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.problems) > 0 {
		t.Errorf("calls that the receiver cannot verify: %q", r.problems)
	}
}

func TestStopsAndLateQueuesAreAnnounced(t *testing.T) {
	onAFileFirst(t, stopsAndLateQueuesAreAnnounced)
}

// stopsAndLateQueuesAreAnnounced lets an operation stop and a queue become late while the receiver is down and all
// processes are killed. Each event is announced once and logged once.
func stopsAndLateQueuesAreAnnounced(t *testing.T, w *world) {
	r := newReceiver(t, notifyKey)
	r.setDown(true)
	start := w.announcing(t, r, "HOLDFAST_NOTIFY_OLDEST_TASK=1s", "HOLDFAST_WORKER_QUEUES=default,notify",
		"HOLDFAST_NOTIFY_KINDS=operation_stopped,queue_late")
	running := start()
	const tasks = 30
	w.enqueue(t, tasks, dying("10.1.0.1"))
	w.awaitCount(t, holdfast.Dead, tasks)
	plan, err := w.PlanOperation(t.Context(), operate.Request{
		Action: store.ActionRetry, Query: "state:dead", Filter: store.Filter{States: []holdfast.State{holdfast.Dead}}, Ramp: []int{10, 100},
	})
	if err != nil {
		t.Fatal(err)
	}
	o, err := w.StartOperation(t.Context(), store.Actor{Name: "anna", Surface: store.CommandLine}, plan.Operation, false)
	if err != nil {
		t.Fatal(err)
	}
	poll(t, func() string { return "the operation is " + string(o.State) }, func(ctx context.Context) bool {
		if now, err := w.Store.Operation(ctx, o.ID); err == nil {
			o = now
		}
		return o.State == store.OperationStopped
	})

	w.enqueue(t, 1, holdfast.NewTask{Type: "http", Queue: "slow"}) // no worker takes it
	logged := func(text string) (lines int) {
		for _, process := range running {
			for _, line := range process.Log(100_000) {
				if strings.Contains(line, text) {
					lines++
				}
			}
		}
		return lines
	}
	messages := []string{"operation has stopped by itself", "oldest due task of the queue is too old"}
	poll(t, func() string { return "the events were not announced" }, func(context.Context) bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		return r.refused > 0 && logged(messages[0]) > 0 && logged(messages[1]) > 0
	})

	for _, process := range running {
		process.Kill()
	}
	running = append(running, start()...)
	r.setDown(false)
	r.await(t, 2)
	// A later event is announced alone.
	w.enqueue(t, 1, holdfast.NewTask{Type: "http", Queue: "slower"})
	events := r.await(t, 3)
	want := []string{fmt.Sprintf("operation_stopped %s stopped", o.ID), "queue_late slow", "queue_late slower"}
	if slices.Sort(events[:2]); !slices.Equal(events, want) {
		t.Errorf("announced %q, want %q", events, want)
	}
	for i, want := range []int{1, 2} {
		if lines := logged(messages[i]); lines != want {
			t.Errorf("%d lines with %q, want %d", lines, messages[i], want)
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.problems) > 0 {
		t.Errorf("calls that the receiver cannot verify: %q", r.problems)
	}
}
