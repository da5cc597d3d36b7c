package simstore

import (
	"context"
	"slices"
	"time"

	"github.com/holdfastq/holdfast/store"
)

// answer is the stored answer to a request.
type answer struct {
	scope, key string
	at         time.Time
	store.Answer
}

// Once implements store.Answers. f gets no transaction, because the store in memory has no SQL transactions.
func (c *Client) Once(ctx context.Context, r store.Request, f func(context.Context, store.Tx) (store.Answer, error)) (found store.Answer, err error) {
	err = c.do(ctx, Step{Op: "Once", text: r.Key}, func(now time.Time) error {
		same := func(a answer) bool { return a.scope == r.Scope && a.key == r.Key }
		answers := slices.Clone(c.store.db.answers)
		if i := slices.IndexFunc(answers, same); i >= 0 && !answers[i].at.Before(now.Add(-store.KeepAnswers)) {
			found = answers[i].Answer
			found.Stored = true
			return nil
		}
		if found, err = f(ctx, nil); err != nil {
			return err
		}
		found.Hash, found.Stored = r.Hash, false
		c.store.db.answers = append(slices.DeleteFunc(answers, same), answer{r.Scope, r.Key, now, found})
		return nil
	})
	if err != nil {
		return store.Answer{}, err
	}
	return found, nil
}

// pruneAnswers deletes at most size answers that are older than the bound.
func (s *Store) pruneAnswers(before time.Time, size int) int {
	deleted := 0
	s.db.answers = slices.DeleteFunc(slices.Clone(s.db.answers), func(a answer) bool {
		old := deleted < size && a.at.Before(before)
		if old {
			deleted++
		}
		return old
	})
	return deleted
}
