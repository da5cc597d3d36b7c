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
	}}})
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
	want := `{"type":"holdfast.notices","events":[{"kind":"group_appeared","at":"2030-01-31T09:00:00Z","group":"3f9ad02c41b7e685","task_type":"http",` +
		`"class":"http_503","host":"a.example.com","status":503,"tasks":12,"first_at":"2030-01-31T09:00:00Z","last_at":"2030-01-31T09:00:00Z",` +
		`"sample":"42","error":"\u003cscript\u003e\u001b[31m","owner":"anna","note":"` + strings.Repeat("é", noticeText-1) + `…"}]}`
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
	for _, c := range []configs.Notify{{URL: "http://127.0.0.1/"}, {URL: "https://user@a.example.com/"}} {
		if _, err := newNotify(c, deliver); !errors.Is(err, holdfast.ErrInvalid) || !strings.Contains(err.Error(), "notify.url") {
			t.Errorf("%+v: %v", c, err)
		}
	}
}
