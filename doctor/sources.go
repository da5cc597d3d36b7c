package doctor

import (
	"cmp"
	"context"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/internal/plan"
	"github.com/holdfastq/holdfast/store"
)

// examineSources checks that sources are pulled in time, and that no slices wait for a person.
func (e *examination) examineSources(ctx context.Context, now time.Time) {
	var defaults plan.Source
	var all []store.Plan
	e.examinePlans(ctx, store.SourceKind, func(p store.Plan) error {
		s, _, err := plan.ReadSource(p)
		switch {
		case p.Name != plan.DefaultSource:
			all = append(all, p)
		case err == nil:
			defaults = s
		}
		return err
	}, func(int) (string, error) {
		var behind, dead similar
		for _, p := range all {
			spec, progress, err := plan.ReadSource(p)
			if err != nil {
				continue
			}
			spec = spec.Effective(defaults)
			if progress.Dead > 0 {
				dead.add(p.Name, holdfast.Hint{Kind: holdfast.HintDeadSlices, Arg: cmp.Or(spec.BackfillOf, p.Name)},
					"the source %s has %s", p.Name, counted(int64(progress.Dead), "dead slice", "dead slices"))
			}
			if spec.Late(progress, now) {
				behind.delayed(p.Name, holdfast.Hint{Kind: holdfast.HintSourceBehind, Arg: p.Name}, spec.Behind(progress, now))
			}
		}
		e.reportFirst(store.SourceKind, dead, "others have dead slices, too: ")
		e.reportDelayed(store.SourceKind, behind, Warning, "behind by up to %s")
		return counted(int64(len(all)), "source is stored", "sources are stored") + ", none is behind, and none has dead slices", nil
	})
}
