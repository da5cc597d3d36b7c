package surface

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"time"

	"github.com/holdfastq/holdfast/app"
	"github.com/holdfastq/holdfast/store"
)

var errGroupFields = errors.New("groups can be selected by type, queue, group, since and until only")

// GroupFilter returns the filter of groups that the search for tasks means. It returns an error if the search has
// another condition, such as exceptions.
func GroupFilter(f store.Filter) (store.DeathFilter, error) {
	selected := store.DeathFilter{Type: f.Type, Queue: f.Queue, Fingerprint: f.Fingerprint, Since: f.Since, Until: f.Until}
	f.Type, f.Queue, f.Fingerprint, f.Since, f.Until, f.Limit = "", "", "", time.Time{}, time.Time{}, 0
	if !reflect.ValueOf(f).IsZero() {
		return store.DeathFilter{}, errGroupFields
	}
	return selected, nil
}

// DeathGroupDetails is everything about one group of dead tasks.
type DeathGroupDetails struct {
	store.DeathGroup
	Queues []store.GroupQueue `json:"queues"`
	// Hours are the numbers of tasks that died in each of the last 24 hours, the last hour first.
	Hours   [24]int64    `json:"hours"`
	History []AuditEntry `json:"history"` // the changes by people, newest first
}

// groupHistory is the maximum number of changes in the details of a group.
const groupHistory = 50

// DeathGroup reads everything about one group of dead tasks, whose fingerprint begins with digits. It returns an
// ErrNotFound if the store does not know the group.
func DeathGroup(ctx context.Context, b *app.Backend, digits string) (DeathGroupDetails, error) {
	fingerprint, err := b.Fingerprint(ctx, digits)
	if err != nil {
		return DeathGroupDetails{}, err
	}
	found, err := b.Store.DeathGroup(ctx, fingerprint)
	if err != nil {
		return DeathGroupDetails{}, err
	}
	history, err := b.Store.AuditLog(ctx, store.AuditFilter{Subject: store.GroupSubject(fingerprint), Limit: groupHistory})
	return DeathGroupDetails{found.DeathGroup, append([]store.GroupQueue{}, found.Queues...), found.Hours, Each(history, AuditEntryOf)}, err
}

// GroupTitle returns what the tasks of a group have in common, for people.
func GroupTitle(g store.DeathGroup) string {
	switch {
	case g.Status > 0 && g.Host != "":
		return fmt.Sprintf("%d from %s", g.Status, g.Host)
	case g.Host != "":
		return g.Class + " from " + g.Host
	}
	return g.Class + " in " + g.Type
}

// GroupQuery returns the search for the dead tasks of a group.
func GroupQuery(fingerprint string) string { return "state:dead group:" + fingerprint }
