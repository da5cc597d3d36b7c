package daemon

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/configs"
	"github.com/holdfastq/holdfast/consumer/webhook"
	"github.com/holdfastq/holdfast/store"
)

// The body of a call has a stable form. HTML and control characters in errors and notes are data.
func TestTheBodyOfANotice(t *testing.T) {
	t.Parallel()
	deliver, err := NewWebhook(configs.Default(), "")
	if err != nil {
		t.Fatal(err)
	}
	c := configs.Default().Notify
	c.URL = "https://hooks.example.com/a"
	notify, err := newNotify(c, deliver)
	if err != nil {
		t.Fatal(err)
	}
	at := time.Date(2030, 1, 31, 9, 0, 0, 0, time.UTC)
	task, err := notify.Compose([]store.Notice{{Kind: store.NoticeGroupAppeared, At: at, Group: store.DeathGroup{
		Fingerprint: "3f9ad02c41b7e685", Type: "http", Class: "http_503", Host: "a.example.com", Status: 503, Tasks: 12, FirstAt: at, LastAt: at,
		Sample: 42, Error: "<script>\x1b[31m", Owner: "anna", Note: strings.Repeat("é", 2*noticeText),
	}}, {Kind: store.NoticeOperationStopped, At: at, Operation: store.Operation{
		ID: 7, Action: store.ActionRetry, Query: "state:dead", Actor: store.Actor{Name: "anna", Surface: store.API, Reason: "again"},
		State: store.OperationStopped, Note: "20 of 20 failed", Rate: 10, StopAbove: 0.5, StepTimeout: time.Minute, Total: 200, Changed: 20, Failed: 20, Judged: 20,
		CreatedAt: at, StartedAt: at, Patch: []byte(`[{"op":"add","path":"/payload/secret","value":"x"}]`),
	}}, {Kind: store.NoticeQueueLate, At: at, Queue: store.LateQueue{Name: "slow", OldestDue: 11 * time.Minute}}})
	if err != nil {
		t.Fatal(err)
	}
	if err := deliver.Validate(task.Payload); err != nil || task.Type != webhook.Type {
		t.Errorf("task %+v: %v", task, err)
	}
	var payload webhook.Payload
	if err := json.Unmarshal(task.Payload, &payload); err != nil {
		t.Fatal(err)
	}
	want := `{"type":"holdfast.notices","events":[{"kind":"group_appeared","at":"2030-01-31T09:00:00Z","group":{"group":"3f9ad02c41b7e685","type":"http",` +
		`"class":"http_503","host":"a.example.com","status":503,"tasks":12,"first_at":"2030-01-31T09:00:00Z","last_at":"2030-01-31T09:00:00Z",` +
		`"sample":"42","error":"\u003cscript\u003e\u001b[31m","note":"` + strings.Repeat("é", noticeText-1) + `…","owner":"anna"}},` +
		`{"kind":"operation_stopped","at":"2030-01-31T09:00:00Z","operation":{"id":"7","action":"retry","query":"state:dead","actor":"anna","surface":"api",` +
		`"reason":"again","state":"stopped","note":"20 of 20 failed","rate":10,"stop_above":0.5,"total":200,"changed":20,"skipped":0,"refused":0,` +
		`"succeeded":0,"failed":20,"judged":20,"step":0,"created_at":"2030-01-31T09:00:00Z","started_at":"2030-01-31T09:00:00Z","ramp":[],"step_timeout":"1m0s"}},` +
		`{"kind":"queue_late","at":"2030-01-31T09:00:00Z","queue":{"queue":"slow","oldest_due":"11m0s"}}]}`
	if string(payload.Body) != want {
		t.Errorf("body\n%s, want\n%s", payload.Body, want)
	}
}

func TestTheURLOfNoticesIsChecked(t *testing.T) {
	t.Parallel()
	deliver, err := NewWebhook(configs.Default(), "")
	if err != nil {
		t.Fatal(err)
	}
	if n, err := newNotify(configs.Default().Notify, deliver); n != nil || err != nil {
		t.Errorf("without a URL: %+v, %v", n, err)
	}
	for _, c := range []configs.Notify{{URL: "http://127.0.0.1/"}, {URL: "https://user@a.example.com/"}, {URL: "https://a.example.com./"}, {URL: "https://a.example.com/ "}} {
		if _, err := newNotify(c, deliver); !errors.Is(err, holdfast.ErrInvalid) || !strings.Contains(err.Error(), "notify.url") {
			t.Errorf("%+v: %v", c, err)
		}
	}
}
