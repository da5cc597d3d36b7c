package e2e

import (
	"database/sql"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/configs"
)

// A receiver ignores a request with a webhook-id that it has already seen. So all attempts of a task have the same
// webhook-id, and no other task has it, even if the store assigns the task id a second time.
func TestEveryDeliveryHasAnIDOfItsOwn(t *testing.T) { onAFileFirst(t, everyDeliveryHasAnIDOfItsOwn) }

func everyDeliveryHasAnIDOfItsOwn(t *testing.T, w *world) {
	tg := newTarget(t, func(c call) int {
		if c.attempt == 1 {
			return 503
		}
		return 204
	})
	server := w.serve(t, nil)
	first := w.enqueue(t, 1, httpTask(tg))[0]
	w.awaitTask(t, first, "done", in(holdfast.Done))
	calls, _ := tg.snapshot()
	if len(calls) != 2 || calls[0].key != calls[1].key {
		t.Fatalf("the calls have the ids %v, want the same id twice", keys(calls))
	}
	if task, err := w.Backend.Task(t.Context(), first); err != nil || task.ImportedKey != calls[0].key {
		t.Errorf("the task has the key %q, the target received %q: %v", task.ImportedKey, calls[0].key, err)
	}

	// These changes simulate the restore of a backup: the store has lost the task and assigns its id again.
	server.signal(syscall.SIGTERM)
	server.exit()
	w.change(t, "delete from {tasks}")
	if w.embedded {
		w.change(t, "update sqlite_sequence set seq = 0 where name = 'tasks'")
	} else {
		w.change(t, "alter sequence {tasks}_id_seq restart")
	}
	reused := w.enqueue(t, 1, httpTask(tg))[0]
	later := httpTask(tg)
	later.Delay = 24 * time.Hour
	edited, imported := w.enqueue(t, 1, later)[0], w.enqueue(t, 1, later)[0]
	before, err := w.Backend.Task(t.Context(), edited)
	if err != nil {
		t.Fatal(err)
	}
	w.change(t, fmt.Sprintf(`update {tasks} set payload = '{"url":"%s","body":"edited"}' where id = %s`, tg.URL, edited))
	w.change(t, fmt.Sprintf("update {tasks} set idempotency_key = 'task_%s_elsewhere' where id = %s", imported, imported))
	w.change(t, fmt.Sprintf("update {tasks} set next_run_at = created_at, due_at = created_at where id in (%s, %s)", edited, imported))
	w.serve(t, nil)
	for _, id := range []holdfast.TaskID{reused, edited, imported} { // the numbers of tasks include the deleted one
		w.awaitTask(t, id, "done", in(holdfast.Done))
	}
	all, _ := tg.snapshot()
	groups := byTask(all[2:])
	for id, calls := range groups {
		if len(calls) != 2 || calls[0].key != calls[1].key {
			t.Errorf("the attempts of task %s have the ids %v", id, keys(calls))
		}
	}
	if reused != first {
		t.Fatalf("the new task has the id %s, want the id %s of the lost task; this test proves nothing", reused, first)
	}
	if key := groups[reused][0].key; key == calls[0].key {
		t.Errorf("two tasks have the webhook-id %s", key)
	}
	if key := groups[edited][0].key; key == before.ImportedKey || key == "" {
		t.Errorf("the payload was edited, but the webhook-id is %q, which is empty or the same as before", key)
	}
	if key, want := groups[imported][0].key, fmt.Sprintf("task_%s_elsewhere", imported); key != want {
		t.Errorf("an imported task has the webhook-id %s, want %s", key, want)
	}
}

// A secret signs only requests to its own hosts. A task for another host is dead after its first attempt: enqueue
// cannot refuse it, because the enqueuing program does not know the hosts of the secret.
func TestSecretsSignForTheirHostsOnly(t *testing.T) { onAFileFirst(t, secretsSignForTheirHostsOnly) }

func secretsSignForTheirHostsOnly(t *testing.T, w *world) {
	const key = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSwMfKQ9r8G"
	receiver, err := standardwebhooks.NewWebhook(key)
	if err != nil {
		t.Fatal(err)
	}
	verified := make(chan error, 10)
	tg := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err == nil {
			err = receiver.Verify(body, r.Header)
		}
		verified <- err
	}))
	t.Cleanup(tg.Close)
	settings := []string{"HOLDFAST_WEBHOOK_SECRETS_BILLING=" + key, "HOLDFAST_WEBHOOK_SECRET_HOSTS_BILLING=127.0.0.1,*.example.com"}
	w.serve(t, settings)
	payload := func(url string) holdfast.NewTask {
		return holdfast.NewTask{Type: "http", Payload: fmt.Appendf(nil, `{"url":"%s","body":{"n":1},"secret_ref":"billing"}`, url)}
	}
	foreign := w.enqueue(t, 1, payload(strings.Replace(tg.URL, "127.0.0.1", "localhost", 1)))[0]
	allowed := w.enqueue(t, 1, payload(tg.URL))[0]
	w.awaitTask(t, allowed, "done", in(holdfast.Done))
	task := w.awaitTask(t, foreign, "dead", in(holdfast.Dead))
	if task.Attempt != 1 || !strings.Contains(task.LastError, `the webhook secret "billing" may not sign requests to localhost:`) {
		t.Errorf("the task for another host is %+v", task)
	}
	if n := len(verified); n != 1 {
		t.Errorf("%d requests were sent, want 1", n)
	}
	if err := <-verified; err != nil {
		t.Errorf("the receiver cannot verify the request: %v", err)
	}
}

// keys returns the webhook-ids of calls.
func keys(calls []call) []string {
	var list []string
	for _, c := range calls {
		list = append(list, c.key)
	}
	return list
}

var table = regexp.MustCompile(`\{(\w+)\}`)

// change executes a statement on the tables directly, without the store. The names of tables are in braces.
func (w *world) change(t *testing.T, statement string) {
	t.Helper()
	driver, source, prefix := "postgres", w.databaseURL, w.schema+"."
	if w.embedded {
		driver, source, prefix = "sqlite", strings.TrimPrefix(w.databaseURL, configs.EmbeddedDatabase)+"?_pragma=busy_timeout(20000)", ""
	}
	db, err := sql.Open(driver, source)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if _, err := db.Exec(table.ReplaceAllString(statement, prefix+"$1")); err != nil {
		t.Fatalf("%s: %v", statement, err)
	}
}
