package scan

import "github.com/holdfastq/holdfast/store"

// Token is a token.
type Token struct {
	ID        int64
	Name      string
	Role      store.TokenRole
	Hash      string
	State     store.TokenState
	CreatedAt Time `db:"created_at"`
	UsedAt    Time `db:"used_at"`
	ExpiresAt Time `db:"expires_at"`
	RevokedAt Time `db:"revoked_at"`
}

// Tokens returns the tokens of all rows.
func Tokens(rows []Token) []store.Token {
	tokens := make([]store.Token, len(rows))
	for i, row := range rows {
		tokens[i] = store.Token{
			ID: row.ID, Name: row.Name, Role: row.Role, Hash: row.Hash, State: row.State,
			CreatedAt: row.CreatedAt.Time, UsedAt: row.UsedAt.Time, ExpiresAt: row.ExpiresAt.Time, RevokedAt: row.RevokedAt.Time,
		}
	}
	return tokens
}
