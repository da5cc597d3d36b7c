package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/api"
	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/workshop/slow"
)

func TestKeysStoreTasksOnceAcrossKills(t *testing.T) {
	onAFileFirst(t, keysStoreTasksOnceAcrossKills)
}

// keysStoreTasksOnceAcrossKills kills the process with the role api at random points. Clients send requests with an
// Idempotency-Key. They repeat each request until it has an answer, and once more. Each key must have stored its tasks
// once, and all answers to a key must name these tasks.
func keysStoreTasksOnceAcrossKills(t *testing.T, w *world) {
	const clients = 24
	kills := slow.Pick(5, 60)
	service := &killable{t: t, w: w}
	service.start()
	stop := make(chan struct{})
	var sending sync.WaitGroup
	var sent [clients]int
	var repeated [clients]int // requests whose tasks were stored although the answer was lost
	for client := range clients {
		sending.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-stop:
					return
				default:
				}
				key := fmt.Sprintf("c%d-%d", client, n)
				answer, lost := service.send(key)
				if answer == nil {
					return // the test has failed
				}
				if lost && answer.replayed {
					repeated[client]++
				}
				if again, _ := service.send(key); again == nil || !again.replayed || again.body != answer.body {
					t.Errorf("key %s: the answer %+v was repeated as %+v", key, answer, again)
				}
				sent[client]++
			}
		})
	}
	for range kills {
		service.awaitAnswers(1 + rand.IntN(60))
		// Requests may be at any point of their execution.
		pause := time.NewTimer(time.Duration(rand.IntN(5000)) * time.Microsecond)
		<-pause.C
		service.restart()
	}
	service.awaitAnswers(clients)
	close(stop)
	sending.Wait()
	keys, after, tasks := 0, 0, int64(0)
	for client := range clients {
		after += repeated[client]
		for n := range sent[client] {
			key := fmt.Sprintf("c%d-%d", client, n)
			answer, _ := service.send(key)
			page, err := w.Store.List(t.Context(), store.Filter{Tags: []string{key}})
			if err != nil || answer == nil {
				t.Fatal(key, err)
			}
			var ids []holdfast.TaskID
			for _, task := range page.Tasks {
				ids = append([]holdfast.TaskID{task.ID}, ids...)
			}
			if want := len(tasksOf(key)); len(ids) != want || fmt.Sprint(ids) != fmt.Sprint(answer.ids(t)) {
				t.Errorf("key %s: the store has the tasks %v, and the answer is %s; want %d tasks", key, ids, answer.body, want)
			}
			keys, tasks = keys+1, tasks+int64(len(ids))
		}
	}
	counts, err := w.Store.Count(t.Context(), store.Filter{})
	if err != nil || counts.By[holdfast.Ready] != tasks {
		t.Errorf("the store has %v, and %d tasks have a key: %v", counts.By, tasks, err)
	}
	t.Logf("%d keys with %d tasks, %d kills; %d requests had stored their tasks before their answer was lost", keys, tasks, kills, after)
	if keys < clients {
		t.Errorf("only %d keys", keys)
	}
}

// tasksOf returns the tasks of the request with a key. A key that ends in 0 or 5 has one task, and the others have
// three.
func tasksOf(key string) []map[string]any {
	task := map[string]any{"type": "mail", "delay": "24h", "tags": []string{key}}
	if strings.HasSuffix(key, "0") || strings.HasSuffix(key, "5") {
		return []map[string]any{task}
	}
	return []map[string]any{task, task, task}
}

// killable is a process with the HTTP API that a test kills and starts again.
type killable struct {
	t *testing.T
	w *world

	mu      sync.Mutex
	process *process
	url     string
	answers int
}

func (k *killable) start() {
	k.t.Helper()
	p := k.w.serve(k.t, nil, "--roles", "worker,janitor,api")
	url := strings.TrimSuffix(p.ready, "/healthz/ready") + api.Prefix + "/tasks"
	k.mu.Lock()
	defer k.mu.Unlock()
	k.process, k.url = p, url
}

// restart kills the process and starts another one.
func (k *killable) restart() {
	k.t.Helper()
	k.process.Kill()
	k.start()
}

// awaitAnswers waits for n more answers.
func (k *killable) awaitAnswers(n int) {
	k.t.Helper()
	k.mu.Lock()
	want := k.answers + n
	k.mu.Unlock()
	poll(k.t, func() string { return "the API does not answer" }, func(context.Context) bool {
		k.mu.Lock()
		defer k.mu.Unlock()
		return k.answers >= want
	})
}

// keyAnswer is the answer to a request with a key.
type keyAnswer struct {
	body     string
	replayed bool
}

// ids returns the tasks of the answer.
func (a *keyAnswer) ids(t *testing.T) (ids []holdfast.TaskID) {
	t.Helper()
	var decoded struct {
		ID    holdfast.TaskID `json:"id"`
		Tasks []struct {
			ID holdfast.TaskID `json:"id"`
		} `json:"tasks"`
	}
	if err := json.Unmarshal([]byte(a.body), &decoded); err != nil {
		t.Fatal(err)
	}
	if decoded.ID != 0 {
		return []holdfast.TaskID{decoded.ID}
	}
	for _, task := range decoded.Tasks {
		ids = append(ids, task.ID)
	}
	return ids
}

// send sends the request with a key until it has an answer. lost reports whether an answer was lost before. answer is
// nil if the test has ended or failed.
func (k *killable) send(key string) (answer *keyAnswer, lost bool) {
	tasks := tasksOf(key)
	body, err := json.Marshal(tasks)
	if len(tasks) == 1 {
		body, err = json.Marshal(tasks[0])
	}
	if err != nil {
		k.t.Error(err)
		return nil, false
	}
	for k.t.Context().Err() == nil {
		k.mu.Lock()
		url := k.url
		k.mu.Unlock()
		request, err := http.NewRequestWithContext(k.t.Context(), http.MethodPost, url, strings.NewReader(string(body)))
		if err != nil {
			k.t.Error(err)
			return nil, false
		}
		request.Header.Set("Content-Type", "application/json")
		request.Header.Set("Idempotency-Key", key)
		request.GetBody = nil // the client repeats nothing by itself
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			lost = true
			wait := time.NewTimer(5 * time.Millisecond) // the process may be starting
			<-wait.C
			continue
		}
		text, err := io.ReadAll(response.Body)
		_ = response.Body.Close() // everything was read
		switch {
		case err != nil || response.StatusCode == http.StatusServiceUnavailable:
			lost = true
		case response.StatusCode != http.StatusCreated:
			k.t.Errorf("key %s: %d %s", key, response.StatusCode, text)
			return nil, false
		default:
			k.mu.Lock()
			k.answers++
			k.mu.Unlock()
			return &keyAnswer{strings.TrimSpace(string(text)), response.Header.Get("Idempotent-Replayed") == "true"}, lost
		}
	}
	return nil, false
}
