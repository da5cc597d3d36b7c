package api

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/internal/surface"
	"github.com/holdfastq/holdfast/store"
)

// GroupPath has the parameter of routes about one group of dead tasks; see TaskPath.
type GroupPath struct {
	Fingerprint string `path:"fingerprint" pattern:"^[0-9a-f]{16}$" doc:"The fingerprint of the group."`
}

// groupTag returns the entity tag of a group. Each change by a person increases the version; a death does not, so that it
// does not get in the way of a person.
func groupTag(version int64) string { return fmt.Sprintf(`"%d"`, version) }

func (a *API) getDeadGroup(ctx context.Context, in *GroupPath) (*tagged[surface.DeathGroupDetails], error) {
	group, err := surface.DeathGroupOf(ctx, a.b, in.Fingerprint)
	return &tagged[surface.DeathGroupDetails]{groupTag(group.Version), group}, err
}

// changeGroup has the parameters of the route that changes a group.
type changeGroup struct {
	GroupPath
	IfMatch string `header:"If-Match" doc:"Change the group only if it still has this entity tag."`
	Reason  string `query:"reason" doc:"Why, for the audit log."`
	RawBody []byte `contentType:"application/json"`
}

// groupPatch is a change of a group.
type groupPatch struct {
	Note  *string `json:"note,omitempty" doc:"Replaces the note; an empty text removes it."`
	Owner *string `json:"owner,omitempty" doc:"Replaces the owner; an empty text removes it."`
	State *string `json:"state,omitempty" enum:"open,resolved" doc:"Resolves the group, or opens a resolved one again."`
}

// change returns the change, which must be one of the members, because the audit log has an entry for each.
func (p *groupPatch) change(fingerprint string) (store.GroupChange, error) {
	c := store.GroupChange{Fingerprint: fingerprint}
	members := 0
	if p.Note != nil {
		c.Action, c.Text, members = store.ActionNote, *p.Note, members+1
	}
	if p.Owner != nil {
		c.Action, c.Text, members = store.ActionAssign, *p.Owner, members+1
	}
	if p.State != nil {
		action, known := map[store.GroupState]store.Action{store.GroupOpen: store.ActionReopen, store.GroupResolved: store.ActionResolve}[store.GroupState(*p.State)]
		if !known {
			return c, newProblem(http.StatusUnprocessableEntity, "invalid_body", "state %q is neither open nor resolved", *p.State)
		}
		c.Action, members = action, members+1
	}
	if members != 1 {
		return c, newProblem(http.StatusUnprocessableEntity, "invalid_body", "the body must have exactly one of note, owner and state")
	}
	return c, nil
}

// changeDeadGroup changes the note, the owner or the state of a group.
func (a *API) changeDeadGroup(ctx context.Context, in *changeGroup) (*tagged[surface.DeathGroup], error) {
	var patch groupPatch
	if err := decode(in.RawBody, &patch); err != nil {
		return nil, err
	}
	change, err := patch.change(in.Fingerprint)
	if err != nil {
		return nil, err
	}
	if in.IfMatch != "" {
		seen, err := a.b.Store.DeathGroup(ctx, in.Fingerprint)
		if err != nil {
			return nil, err
		}
		if !matches(in.IfMatch, groupTag(seen.Version)) {
			return nil, changed("group %s has changed: it now has the entity tag %s", in.Fingerprint, groupTag(seen.Version))
		}
		change.Version = seen.Version
	}
	group, err := a.b.Store.ChangeDeathGroup(ctx, actor(ctx, in.Reason), change)
	if change.Version != 0 && errors.Is(err, holdfast.ErrConflict) {
		return nil, changed("group %s has changed meanwhile", in.Fingerprint)
	}
	return &tagged[surface.DeathGroup]{groupTag(group.Version), surface.NewDeathGroup(group)}, err
}
