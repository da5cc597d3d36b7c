package explain

import (
	"reflect"
	"slices"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/store"
)

// usePublished replaces the settings with the published settings of the worker that runs the task. If the task does not
// run, usePublished takes those of the newest worker that may claim it. If no such worker publishes settings, the
// settings do not change.
func (f *Facts) usePublished() {
	var found []store.TypeSettings
	var by []store.Worker
	for _, w := range f.Workers {
		settings, published := w.Settings[f.Task.Type]
		switch {
		case !published:
		case f.Task.State == holdfast.Running && w.ID == f.Task.Worker:
			f.apply(settings)
			return
		case takes(w, f.Task.Queue):
			found, by = append(found, settings), append(by, w)
		}
	}
	if len(found) == 0 {
		return
	}
	f.apply(found[0])
	if slices.ContainsFunc(found, func(other store.TypeSettings) bool { return !reflect.DeepEqual(other, found[0]) }) {
		f.settledBy = describe(by[0])
	}
}

func (f *Facts) apply(s store.TypeSettings) {
	f.Settings.Policy, f.Settings.Timeout, f.Settings.AbandonAfter = s.Policy, s.Timeout, s.AbandonAfter
	f.policyFor = s.PolicyFor
}
