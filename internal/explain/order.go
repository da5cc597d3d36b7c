package explain

import (
	"fmt"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/store"
)

// untilHelped describes when a dead task stops to hold its key.
const untilHelped = "until an operator retries, cancels or archives it"

// waitsForTurn reports whether a ready task waits until earlier ordered tasks of its key have ended.
func (f *Facts) waitsForTurn() bool {
	return f.Task.State == holdfast.Ready && !f.Task.Doomed && f.Place != nil && f.Place.Ahead >= 0
}

// whyOrdered returns the cause of a task that waits for its turn.
func (f *Facts) whyOrdered() Cause {
	p := f.Place
	text := fmt.Sprintf("it waits for its turn among the ordered tasks of the key %s: ", p.Key)
	switch {
	case p.Active == 0:
		text += "none of them is active, so a janitor makes the next one due"
	case p.State == holdfast.Dead && p.Doomed:
		text += fmt.Sprintf("task %s has been dead for %s, and the tasks behind it die too, without an attempt", p.Active, f.keySince())
	case p.State == holdfast.Dead:
		text += fmt.Sprintf("task %s has been dead for %s and blocks the key %s", p.Active, f.keySince(), untilHelped)
	default:
		text += fmt.Sprintf("task %s is %s", p.Active, p.State)
	}
	text += "; " + upTo(p.Ahead, "waiting task is ahead", "waiting tasks", "are ahead")
	if in := f.Task.NextRunAt.Sub(f.Now); in > 0 {
		text += fmt.Sprintf("; it does not start within %s, %s", rounded(in), f.whyDelayed())
	}
	return Cause{Code: Ordered, Text: text}
}

// keySince returns how long ago the active task of the key died.
func (f *Facts) keySince() time.Duration { return rounded(f.Now.Sub(f.Place.Since)) }

// whyDoomed returns the cause of a doomed task, which dies without an attempt.
func (f *Facts) whyDoomed() Cause {
	return Cause{Code: Doomed, Text: fmt.Sprintf("an earlier ordered task of the key %s is dead, and its type has after_death dead; "+
		"the next worker gives this task up without an attempt", f.Task.Key)}
}

func (f *Facts) nextDoomed() []string {
	return []string{"the task is dead, and its handler is not called",
		"an operator can retry it then; if the earlier task is retried first, it runs before this one"}
}

// nextTurn describes what an operator can do with a dead task that blocks the key, so that the task gets its turn. It
// returns nil if no dead task blocks the key.
func (f *Facts) nextTurn() []string {
	if p := f.Place; p.State == holdfast.Dead && !p.Doomed {
		return []string{
			fmt.Sprintf("if an operator retries task %s, that task runs again first", p.Active),
			fmt.Sprintf("if an operator cancels or archives task %s, the next ordered task of the key starts", p.Active),
		}
	}
	return nil
}

// behind describes what happens to the ordered tasks behind a dead task that still holds its key. It returns nil for
// any other task.
func (f *Facts) behind() []string {
	p := f.Place
	if f.Task.State != holdfast.Dead || p == nil || p.Ahead >= 0 {
		return nil
	}
	switch {
	case p.Doomed:
		return []string{fmt.Sprintf("later ordered tasks of the key %s die without an attempt %s", p.Key, untilHelped)}
	case p.Waiting == 0:
		return []string{fmt.Sprintf("new ordered tasks of the key %s wait behind it %s", p.Key, untilHelped)}
	case p.Waiting == 1:
		return []string{fmt.Sprintf("1 ordered task of the key %s waits behind it %s", p.Key, untilHelped)}
	}
	more := ""
	if p.Waiting >= store.MaxCountedBlocked {
		more = " or more"
	}
	return []string{fmt.Sprintf("%d%s ordered tasks of the key %s wait behind it %s", p.Waiting, more, p.Key, untilHelped)}
}
