package janitor

import (
	"context"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/store"
)

const (
	notifyEvery = 6 * time.Second
	// notifyTurn is the shortest time between two calls of all janitors, so there are at most 12 calls a minute.
	notifyTurn = 5 * time.Second
	// notifyBatch is how many events one call announces. More events wait for the next call.
	notifyBatch = 100
)

// Notify configures the announcement of events.
type Notify struct {
	Kinds []store.NoticeKind
	// Queue is the queue of the tasks that announce events. Deaths in it are not announced, so a call that fails causes
	// no further calls.
	Queue    string
	MinTasks int // see store.NoticeFilter
	// Compose returns the task that announces events, without a queue.
	Compose func([]store.Notice) (holdfast.NewTask, error)
}

// notify announces the events since the turn before by at most one task.
func (j *Janitor) notify(ctx context.Context) error {
	myTurn, err := j.o.Store.Turn(ctx, "notify", notifyTurn)
	if err != nil || !myTurn {
		return err
	}
	n := j.o.Notify
	filter := store.NoticeFilter{Kinds: n.Kinds, ExceptQueue: n.Queue, MinTasks: n.MinTasks, After: j.noticesAfter, Limit: notifyBatch}
	announced, err := j.o.Store.Announce(ctx, filter, func(notices []store.Notice) (holdfast.NewTask, error) {
		task, err := n.Compose(notices)
		task.Queue = n.Queue
		if task.MaxAttempts == 0 {
			task.MaxAttempts = j.o.Settings.For(task.Type).Policy.MaxAttempts
		}
		return task, err
	})
	if err != nil {
		return err
	}
	j.noticesAfter = announced.Next
	messages := map[store.NoticeKind]string{
		store.NoticeGroupAppeared: "group of dead tasks has appeared", store.NoticeGroupReturned: "resolved group of dead tasks has returned",
	}
	for _, notice := range announced.Notices {
		g := notice.Group
		j.o.Log.WithFields(logrus.Fields{
			"group": g.Fingerprint, "type": g.Type, "class": g.Class, "tasks": g.Tasks, "sample": g.Sample, "error": g.Error, "task": announced.Task,
		}).Warn(messages[notice.Kind])
	}
	return nil
}
