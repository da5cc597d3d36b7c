package desk

import (
	"context"
	"fmt"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/store/internal/column"
	"github.com/holdfastq/holdfast/store/internal/scan"
	"github.com/holdfastq/holdfast/store/internal/transact"
)

// CreateToken stores a token, adds an audit entry and returns the id of the token. It returns ErrConflict if a
// token with the same name exists and is not revoked.
func (d *Desk) CreateToken(ctx context.Context, by store.Actor, t store.NewToken) (id int64, err error) {
	err = d.transactions.Transact(ctx, "create token", func(ctx context.Context, tx transact.Transaction) error {
		taken := fmt.Errorf("%w: there is a token with the name %q", holdfast.ErrConflict, t.Name)
		created, err := transact.FirstOf[scan.ID](ctx, tx, taken, "token_create", t.Name, string(t.Role), t.Hash, t.Lifetime)
		if err != nil {
			return err
		}
		id = created.ID
		entry := transact.EntryOf(by, store.ActionCreate, "token "+t.Name)
		entry.After = transact.TextOf([]byte(transact.Encode(map[string]string{"role": string(t.Role)})))
		return transact.Record(ctx, tx, []transact.AuditRow{entry})
	})
	return id, err
}

// RevokeToken revokes the token with the name forever, and adds an audit entry. It returns ErrNotFound if no
// unrevoked token has the name.
func (d *Desk) RevokeToken(ctx context.Context, by store.Actor, name string) error {
	return d.transactions.Transact(ctx, "revoke token", func(ctx context.Context, tx transact.Transaction) error {
		n, err := tx.Change(ctx, "token_revoke", column.Text(name))
		if err != nil {
			return err
		}
		if n == 0 {
			return fmt.Errorf("%w: no token that is not revoked has the name %q", holdfast.ErrNotFound, name)
		}
		return transact.Record(ctx, tx, []transact.AuditRow{transact.EntryOf(by, store.ActionRevoke, "token "+name)})
	})
}

// Tokens returns all tokens in the order of their creation, including revoked and expired ones.
func (d *Desk) Tokens(ctx context.Context) ([]store.Token, error) {
	var tokens []store.Token
	err := d.transactions.Read(ctx, "list tokens", "tokens", &tokens)
	return tokens, err
}

// UseToken records that a token was used now. It writes at most once a minute for each token.
func (d *Desk) UseToken(ctx context.Context, id int64) error {
	return d.transactions.Change(ctx, "record the use of a token", "token_use", id)
}
