package daemon

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/configs"
	"github.com/holdfastq/holdfast/consumer/webhook"
	"github.com/holdfastq/holdfast/janitor"
	"github.com/holdfastq/holdfast/store"
)

// noticesType is the type in the body of a call. Another type would have another form.
const noticesType = "holdfast.notices"

// noticeText is how many characters of an error and of a note a call has at most.
const noticeText = 1000

// notices is the body of a call that announces events.
type notices struct {
	Type   string   `json:"type"`
	Events []notice `json:"events"`
}

// notice is one event in the body of a call.
type notice struct {
	Kind     store.NoticeKind `json:"kind"`
	At       time.Time        `json:"at"`
	Group    string           `json:"group"`
	TaskType string           `json:"task_type"`
	Class    string           `json:"class"`
	Host     string           `json:"host,omitempty"`
	Status   int              `json:"status,omitempty"`
	Tasks    int64            `json:"tasks"`
	FirstAt  time.Time        `json:"first_at"`
	LastAt   time.Time        `json:"last_at"`
	Sample   holdfast.TaskID  `json:"sample"`
	Error    string           `json:"error"`
	Owner    string           `json:"owner"`
	Note     string           `json:"note"`
}

// newNotify returns how the janitor announces events, and nil if the configuration has no URL. It returns an ErrInvalid
// if deliver refuses the URL.
func newNotify(c configs.Notify, deliver *webhook.Handler) (*janitor.Notify, error) {
	if c.URL == "" {
		return nil, nil
	}
	n := &janitor.Notify{Queue: c.Queue, MinTasks: c.MinTasks, Compose: func(found []store.Notice) (holdfast.NewTask, error) {
		body, err := json.Marshal(bodyOf(found))
		if err != nil {
			return holdfast.NewTask{}, err
		}
		payload, err := json.Marshal(webhook.Payload{URL: c.URL, Body: body, SecretRef: c.Secret})
		return holdfast.NewTask{Type: webhook.Type, Payload: payload}, err
	}}
	for _, kind := range c.Kinds {
		n.Kinds = append(n.Kinds, store.NoticeKind(kind))
	}
	sample, err := n.Compose(nil)
	if err == nil {
		err = deliver.Validate(sample.Payload)
	}
	if err != nil {
		return nil, fmt.Errorf("notify.url: %w", err)
	}
	return n, nil
}

// bodyOf returns the body of the call that announces events.
func bodyOf(found []store.Notice) notices {
	body := notices{Type: noticesType, Events: []notice{}}
	for _, f := range found {
		g := f.Group
		body.Events = append(body.Events, notice{
			Kind: f.Kind, At: f.At, Group: g.Fingerprint, TaskType: g.Type, Class: g.Class, Host: g.Host, Status: g.Status,
			Tasks: g.Tasks, FirstAt: g.FirstAt, LastAt: g.LastAt, Sample: g.Sample,
			Error: shortened(g.Error), Owner: g.Owner, Note: shortened(g.Note),
		})
	}
	return body
}

// shortened returns at most noticeText characters of text.
func shortened(text string) string {
	if runes := []rune(text); len(runes) > noticeText {
		return string(runes[:noticeText-1]) + "…"
	}
	return text
}
