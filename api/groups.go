package api

import (
	"context"
	"errors"
	"net/http"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/surface"
)

// GroupPath has the parameter of routes about one group of dead tasks; see TaskPath.
type GroupPath struct {
	Fingerprint string `path:"fingerprint" doc:"The fingerprint of the group, or its first digits, if no other group begins with them."`
}

func (a *API) getDeadGroup(ctx context.Context, in *GroupPath) (*tagged[surface.DeathGroupDetails], error) {
	group, err := surface.DeathGroup(ctx, a.b, in.Fingerprint)
	return withTag(versionTag(group.Version), group, aboutParameter("fingerprint", err)) // only people change the version: a death does not
}

// changeGroup has the parameters of the route that changes a group.
type changeGroup struct {
	GroupPath
	Conditional
	RawJSON
}

// groupPatch is a change of a group.
type groupPatch struct {
	Note  *string `json:"note,omitempty" doc:"Replaces the note; an empty text removes it."`
	Owner *string `json:"owner,omitempty" doc:"Replaces the owner; an empty text removes it."`
	State *string `json:"state,omitempty" enum:"open,resolved" doc:"Resolves the group, or opens a resolved one again."`
}

// change returns the change. The patch must have one member, because each change has its own audit entry.
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
			return c, newProblem(http.StatusUnprocessableEntity, invalidBody, "state %q is neither open nor resolved", *p.State)
		}
		c.Action, members = action, members+1
	}
	if members != 1 {
		return c, newProblem(http.StatusUnprocessableEntity, invalidBody, "the body must have exactly one of note, owner and state")
	}
	return c, nil
}

// changeDeadGroup changes the note, the owner or the state of a group.
func (a *API) changeDeadGroup(ctx context.Context, in *changeGroup, patch groupPatch) (*tagged[store.DeathGroup], error) {
	change, err := patch.change(in.Fingerprint)
	if err != nil {
		return nil, err
	}
	if change.Fingerprint, err = a.b.Fingerprint(ctx, in.Fingerprint); err != nil {
		return nil, aboutParameter("fingerprint", err)
	}
	if in.IfMatch != "" {
		seen, err := a.b.Store.DeathGroup(ctx, change.Fingerprint)
		if err == nil {
			err = unchanged(in.IfMatch, versionTag(seen.Version), "group %s has changed: it now has", in.Fingerprint)
		}
		if err != nil {
			return nil, err
		}
		change.Version = seen.Version
	}
	group, err := a.b.Store.ChangeDeathGroup(ctx, actor(ctx, in.Reason), change)
	if change.Version != 0 && errors.Is(err, holdfast.ErrConflict) {
		return nil, changed("group %s has changed meanwhile", in.Fingerprint)
	}
	return withTag(versionTag(group.Version), group, err)
}
