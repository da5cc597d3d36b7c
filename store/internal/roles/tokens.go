package roles

import (
	"context"
	"fmt"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/store/internal/column"
	"github.com/holdfastq/holdfast/store/internal/scan"
)

// tokens implements store.Tokens.
type tokens struct{ transactions Transactions }

// CreateToken implements store.Tokens.
func (k *tokens) CreateToken(ctx context.Context, by store.Actor, t store.NewToken) (id int64, err error) {
	err = k.transactions.Transact(ctx, "create token", func(ctx context.Context, tx Transaction) error {
		taken := fmt.Errorf("%w: there is a token with the name %q", holdfast.ErrConflict, t.Name)
		created, err := firstOf[scan.ID](ctx, tx, taken, "token_create", t.Name, string(t.Role), t.Hash, t.Lifetime)
		if err != nil {
			return err
		}
		id = created.ID
		entry := entryOf(by, store.ActionCreate, "token "+t.Name)
		entry.After = text([]byte(encode(map[string]string{"role": string(t.Role)})))
		return record(ctx, tx, []auditRow{entry})
	})
	return id, err
}

// RevokeToken implements store.Tokens.
func (k *tokens) RevokeToken(ctx context.Context, by store.Actor, name string) error {
	return k.transactions.Transact(ctx, "revoke token", func(ctx context.Context, tx Transaction) error {
		n, err := tx.Change(ctx, "token_revoke", column.Text(name))
		if err != nil {
			return err
		}
		if n == 0 {
			return fmt.Errorf("%w: no token that is not revoked has the name %q", holdfast.ErrNotFound, name)
		}
		return record(ctx, tx, []auditRow{entryOf(by, store.ActionRevoke, "token "+name)})
	})
}

// Tokens implements store.Tokens.
func (k *tokens) Tokens(ctx context.Context) ([]store.Token, error) {
	var tokens []store.Token
	err := k.transactions.Read(ctx, "list tokens", "tokens", &tokens)
	return tokens, err
}

// UseToken implements store.Tokens.
func (k *tokens) UseToken(ctx context.Context, id int64) error {
	return k.transactions.Change(ctx, "record the use of a token", "token_use", id)
}
