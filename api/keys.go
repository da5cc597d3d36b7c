package api

import (
	"context"

	"github.com/holdfastq/holdfast/store"
)

// keyList is a list of keys with ordered tasks.
type keyList struct {
	Keys []store.OrderedKey `json:"keys"`
}

// keyQuery has the parameters of the list of keys.
type keyQuery struct {
	Dead  bool `query:"dead" doc:"Only keys whose active task is dead."`
	Limit int  `query:"limit" default:"50" minimum:"1" maximum:"1000" doc:"At most so many keys."`
}

func (a *API) listKeys(ctx context.Context, in *keyQuery) (keyList, error) {
	found, err := a.b.Store.OrderedKeys(ctx, in.Dead, in.Limit)
	return keyList{append([]store.OrderedKey{}, found...)}, err
}
