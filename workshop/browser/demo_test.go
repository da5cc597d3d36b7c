package browser

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/queue"
	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/workshop/backendtest"
)

// demo is a world with data of every kind, as on a busy day.
type demo struct {
	*world
	admin string // the secret of an administrator
	dead  holdfast.TaskID
	paths map[string]string // of the pages, by the name of the page
}

func newDemo(t *testing.T) *demo {
	t.Helper()
	d := &demo{world: newWorld(t)}
	running := make(chan struct{}, 10)
	d.handle(func(ctx context.Context, task holdfast.Task) error {
		switch {
		case task.Tags != nil && task.Tags[0] == "long":
			queue.Progress(ctx, 64, "12,800 of 20,000 rows")
			running <- struct{}{}
			<-ctx.Done()
			return ctx.Err()
		case task.Tags != nil && task.Tags[0] == "refused":
			return holdfast.Permanent(errors.New("503 Service Unavailable from smtp.acme.example: try again later"))
		case task.Tags != nil && task.Tags[0] == "broken":
			return holdfast.Permanent(errors.New("decode image 4711.png: unexpected EOF after 8192 bytes"))
		case task.Tags != nil && task.Tags[0] == "again":
			return errors.New("dial tcp 203.0.113.7:443: connection refused")
		}
		return nil
	})
	mail := func(i int, tags ...string) holdfast.NewTask {
		return holdfast.NewTask{
			Type: "mail", Queue: "mail", Key: fmt.Sprintf("tenant %d", i%3+1), Tags: tags, Payload: json.RawMessage(fmt.Sprintf(
				`{"to": "user%d@example.org", "template": "invoice", "order": {"id": %d, "items": [{"sku": "A-17", "count": 2}, {"sku": "B-4", "count": 1}], "total": 104.50}}`, i, 9007199254740993+i)),
		}
	}
	var done, dead, archived []holdfast.NewTask
	for i := range 24 {
		done = append(done, mail(i))
	}
	for i := range 38 {
		dead = append(dead, mail(100+i, "refused", "spring"))
	}
	for i := range 4 {
		dead = append(dead, holdfast.NewTask{Type: "resize", Queue: "media", Tags: []string{"broken"}, Payload: json.RawMessage(fmt.Sprintf(`{"image": %d}`, 4711+i))})
	}
	for i := range 3 {
		archived = append(archived, mail(200+i, "refused", "old"))
	}
	d.await(holdfast.Done, d.enqueue(done...)...)
	old := d.enqueue(archived...)
	d.await(holdfast.Dead, old...)
	d.call("", "POST", "/operations", `{"action": "archive", "query": "state:dead tag:old", "reason": "the customer has left"}`)
	d.await(holdfast.Archived, old...)
	failed := d.enqueue(dead...)
	d.await(holdfast.Dead, failed...)
	d.dead = failed[20]
	group := d.group(d.dead)
	d.call("", "PATCH", "/dead-groups/"+group, `{"owner": "ann"}`)
	d.call("", "PATCH", "/dead-groups/"+group, `{"note": "the vendor has an outage until noon"}`)
	var operation struct{ ID json.Number }
	text := d.call("", "POST", "/operations", `{"action": "retry", "query": "state:dead group:`+group+` tag:spring", "ramp": [10, 50, 100], "stop_above": 0.2, "reason": "the vendor is back"}`)
	if err := json.Unmarshal([]byte(text), &operation); err != nil {
		d.Fatal(err, text)
	}
	d.awaitOperation(operation.ID.String(), store.OperationStopped)
	d.call("", "POST", "/tasks/"+d.dead.String()+"/retry", `{"reason": "one for the vendor to look at"}`)
	d.await(holdfast.Dead, d.dead)

	long := make([]holdfast.NewTask, 3)
	for i := range long {
		long[i] = holdfast.NewTask{Type: "report", Queue: "reports", Tags: []string{"long", "month"}, Payload: json.RawMessage(fmt.Sprintf(`{"month": "2026-%02d"}`, i+1))}
	}
	d.enqueue(long...)
	for range long {
		<-running
	}
	d.enqueue(mail(300, "again"), mail(301, "again"))
	d.call("", "POST", "/gates", `{"kind": "pause", "key": "tenant 9", "for": "2h", "reason": "migration of the tenant"}`)
	late := mail(400)
	late.Key = "tenant 9"
	later := mail(401)
	later.Delay = 3 * 3600e9
	d.enqueue(late, later)
	for i := range 5 {
		site := mail(500 + i)
		site.Key, site.Topic = late.Key, fmt.Sprintf("site %d", i%2+1)
		d.enqueue(site)
	}
	album := holdfast.NewTask{Type: "resize", Queue: "media", Key: "album 12", Ordered: true, Tags: []string{"broken"}, Payload: json.RawMessage(`{"image": 4799}`)}
	d.await(holdfast.Dead, d.enqueue(album, album, album)[0])
	d.call("", "PUT", "/limits", `{"type": "mail", "rate": "100/s", "reason": "agreed with the vendor"}`)
	d.call("", "POST", "/schedules", `{"name": "nightly", "cron": "30 2 * * *", "timezone": "Europe/Berlin", "task": {"type": "report", "queue": "reports"}}`)
	d.call("", "POST", "/schedules", `{"name": "heartbeat", "every": "15m", "task": {"type": "mail", "queue": "mail"}}`)
	d.call("", "POST", "/schedules/heartbeat/pause", `{"reason": "noisy"}`)
	d.call("", "PUT", "/sources/orders", `{"type": "resize", "every": "1h", "start": "-3h"}`)
	d.call("", "PUT", "/shard-jobs/reindex", `{"type": "resize", "zones": {"0": "a", "1": "b", "2": "a"}, "every": "1h"}`)
	d.call("", "POST", "/schedules/nightly/backfill", `{"from": "2026-01-01T00:00:00Z", "to": "2026-01-05T00:00:00Z"}`)
	var batch struct{ ID json.Number }
	text = d.call("", "POST", "/batches", `{"name": "april-letters", "allow_failed": "5%", "note": "second try", "stages": [{"tasks": [{"type": "mail", "queue": "mail"}, {"type": "mail", "queue": "mail"}, {"type": "mail", "queue": "mail"}]}], "then": {"type": "mail"}}`)
	if err := json.Unmarshal([]byte(text), &batch); err != nil {
		d.Fatal(err, text)
	}
	now, err := d.Store.Now(d.Context())
	if err != nil {
		d.Fatal(err)
	}
	backendtest.Day(t, d.Store, now)
	d.admin = d.token("ann", store.Admin)
	d.token("dashboard", store.Viewer)
	d.token("former", store.Operator)
	if err := d.Store.RevokeToken(d.Context(), tester, "former"); err != nil {
		d.Fatal(err)
	}
	d.eventually("callers without a token are refused", func() bool { // the process reads the tokens once a second
		response, err := http.Get(d.url + "/")
		if err != nil {
			d.Fatal(err)
		}
		response.Body.Close()
		return response.Request.URL.Path == "/login"
	})
	workers, err := d.Store.Workers(d.Context(), false)
	if err != nil || len(workers) == 0 {
		d.Fatal("no worker", err)
	}
	d.paths = map[string]string{
		"overview": "/", "dead": "/dead", "group": "/dead/" + group, "tasks": "/tasks", "task": "/tasks/" + d.dead.String(), "queues": "/queues",
		"workers": "/workers", "worker": "/workers/" + workers[0].ID.String(), "operations": "/operations", "operation": "/operations/" + operation.ID.String(),
		"gates": "/gates", "keys": "/keys", "topics": "/topics", "schedules": "/schedules", "batches": "/batches", "batch": "/batches/" + batch.ID.String(), "audit": "/audit",
		"tokens": "/tokens", "settings": "/settings", "setting": "/settings/change?key=types.mail.retry.base&value=5s", "queue": "/queues/mail", "schedule": "/schedules/nightly", "source": "/sources/orders", "shard-job": "/shards/reindex",
		"new-schedule": "/schedules/new", "edit-schedule": "/schedules/nightly/edit", "edit": "/tasks/" + d.dead.String() + "/edit", "plan": "/operations/new?action=retry&query=state:dead", "selection": "/tasks?q=state:dead", "problem": "/tasks/999999", "search-error": "/tasks?q=stat:dead", "login": "/login",
	}
	return d
}

// group returns the fingerprint of the group of a dead task.
func (w *world) group(id holdfast.TaskID) string {
	w.Helper()
	groups, err := w.Store.DeathGroups(w.Context(), store.DeathFilter{Limit: 10})
	if err != nil {
		w.Fatal(err)
	}
	task, err := w.Task(w.Context(), id)
	if err != nil {
		w.Fatal(err)
	}
	for _, g := range groups {
		if g.Type == task.Type && strings.Contains(task.LastError, g.Error) {
			return string(g.Fingerprint)
		}
	}
	w.Fatalf("task %s has no group among %+v", id, groups)
	return ""
}

// signIn signs a tab in with a token.
func (b *tab) signIn(secret string) {
	b.Helper()
	b.visit("/login")
	b.eval(`document.getElementById("token").value = ` + quote(secret))
	b.follow(".signin button")
}
