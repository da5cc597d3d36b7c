package simstore

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/store"
)

// CreateToken implements store.Tokens.
func (c *Client) CreateToken(ctx context.Context, by store.Actor, t store.NewToken) (id int64, err error) {
	err = c.do(ctx, Step{Op: "CreateToken", text: t.Name}, func(now time.Time) error {
		if err := by.Validate(); err != nil {
			return err
		}
		db := &c.store.db
		if slices.ContainsFunc(db.tokens, func(other store.Token) bool { return other.Name == t.Name && other.RevokedAt.IsZero() }) {
			return fmt.Errorf("create token: %w: there is a token with the name %q", holdfast.ErrConflict, t.Name)
		}
		db.last.token++
		id = db.last.token
		token := store.Token{ID: id, Name: t.Name, Role: t.Role, Hash: t.Hash, CreatedAt: now}
		if t.Lifetime > 0 {
			token.ExpiresAt = now.Add(t.Lifetime)
		}
		db.tokens = append(slices.Clip(db.tokens), token)
		after, err := json.Marshal(map[string]string{"role": string(t.Role)})
		c.store.recordAudit(store.AuditEntry{At: now, Actor: by, Action: store.ActionCreate, Subject: "token " + t.Name, After: after})
		return err
	})
	return id, err
}

// RevokeToken implements store.Tokens.
func (c *Client) RevokeToken(ctx context.Context, by store.Actor, name string) error {
	return c.do(ctx, Step{Op: "RevokeToken", text: name}, func(now time.Time) error {
		if err := by.Validate(); err != nil {
			return err
		}
		tokens := slices.Clone(c.store.db.tokens)
		i := slices.IndexFunc(tokens, func(t store.Token) bool { return t.Name == name && t.RevokedAt.IsZero() })
		if i < 0 {
			return fmt.Errorf("revoke token: %w: no token that is not revoked has the name %q", holdfast.ErrNotFound, name)
		}
		tokens[i].RevokedAt = now
		c.store.db.tokens = tokens
		c.store.recordAudit(store.AuditEntry{At: now, Actor: by, Action: store.ActionRevoke, Subject: "token " + name})
		return nil
	})
}

// Tokens implements store.Tokens.
func (c *Client) Tokens(ctx context.Context) ([]store.Token, error) {
	var tokens []store.Token
	err := c.do(ctx, Step{Op: "Tokens"}, func(now time.Time) error {
		tokens = slices.Clone(c.store.db.tokens)
		for i := range tokens {
			t := &tokens[i]
			switch {
			case !t.RevokedAt.IsZero():
				t.State = store.TokenRevoked
			case !t.ExpiresAt.IsZero() && !t.ExpiresAt.After(now):
				t.State = store.TokenExpired
			default:
				t.State = store.TokenActive
			}
		}
		return nil
	})
	return tokens, err
}

// UseToken implements store.Tokens.
func (c *Client) UseToken(ctx context.Context, id int64) error {
	return c.do(ctx, Step{Op: "UseToken", ids: []int64{id}}, func(now time.Time) error {
		tokens := slices.Clone(c.store.db.tokens)
		for i := range tokens {
			if t := &tokens[i]; t.ID == id && (t.UsedAt.IsZero() || now.Sub(t.UsedAt) > time.Minute || t.UsedAt.Sub(now) > 2*time.Second) {
				t.UsedAt = now
			}
		}
		c.store.db.tokens = tokens
		return nil
	})
}
