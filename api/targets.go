package api

import (
	"context"

	"github.com/holdfastq/holdfast/surface"
)

// targetList is a list of targets.
type targetList struct {
	Targets []surface.Target `json:"targets"`
}

func (a *API) listTargets(ctx context.Context, _ *struct{}) (targetList, error) {
	found, err := surface.Targets(ctx, a.b)
	return targetList{found}, err
}

// getTarget takes the target as a parameter, because it is a URL. Proxies change the slashes of URLs in paths.
func (a *API) getTarget(ctx context.Context, in *surface.TargetQuery) (surface.Target, error) {
	if err := in.Check(); err != nil {
		return surface.Target{}, err
	}
	return surface.TargetOf(ctx, a.b, in.Target)
}
