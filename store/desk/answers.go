package desk

import (
	"context"
	"fmt"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/store/internal/column"
	"github.com/holdfastq/holdfast/store/internal/transact"
)

// answerTries is how often Once tries to read an answer. A try fails if the answer is deleted before Once reads it.
const answerTries = 3

// Once calls f in a transaction and stores the answer of f in the same transaction. f must use tx for all its
// writes. If f returns an error, Once rolls the transaction back and returns that error. Once may call f again if
// the transaction conflicts with another one.
//
// If the store has an answer to a request with the same scope and key, younger than KeepAnswers, Once returns that
// answer without a call of f. If its hash differs from r.Hash, it is the answer to a different request. If another
// call with the same scope and key is in progress, Once waits for its end.
//
// The first statement inserts the row of the answer, so that a second call with the same key waits for the end of this transaction.
func (d *Desk) Once(ctx context.Context, r store.Request, f func(context.Context, store.Tx) (store.Answer, error)) (answer store.Answer, err error) {
	scope, key := column.Text(r.Scope), column.Text(r.Key)
	err = d.transactions.Transact(ctx, "answer a request once", func(ctx context.Context, tx transact.Transaction) error {
		for range answerTries {
			begun, err := tx.Change(ctx, "answer_begin", scope, key, r.Hash, store.KeepAnswers)
			if err != nil {
				return err
			}
			if begun == 1 {
				if answer, err = f(ctx, tx.Tx()); err != nil {
					return err
				}
				answer.Hash, answer.Stored = r.Hash, false
				_, err = tx.Change(ctx, "answer_end", scope, key, answer.Status, answer.Body)
				return err
			}
			var stored []store.Answer
			if err := tx.Read(ctx, "answer", &stored, scope, key); err != nil {
				return err
			}
			if len(stored) == 1 {
				answer, answer.Stored = stored[0], true
				return nil
			}
		}
		return fmt.Errorf("%w: the answer to the request changes too often", holdfast.ErrUnavailable)
	})
	if err != nil {
		return store.Answer{}, err
	}
	return answer, nil
}
