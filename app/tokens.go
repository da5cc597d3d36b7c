package app

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"regexp"
	"slices"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/store"
)

// secretPrefix begins every secret, so that scanners for leaked secrets recognize it.
const secretPrefix = "holdfast_"

var tokenName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._@-]{0,99}$`)

// CreateToken creates a token for the HTTP API and returns its secret, which the store does not have. With a lifetime
// of 0, the token never expires. It returns an ErrInvalid if the name or the role is not valid, and an ErrConflict if
// the name is taken.
func (b *Backend) CreateToken(ctx context.Context, by store.Actor, name string, role store.TokenRole, lifetime time.Duration) (secret string, err error) {
	switch {
	case !tokenName.MatchString(name):
		return "", fmt.Errorf("%w: the name of a token must be 1 to 100 letters, digits or . _ @ -", holdfast.ErrInvalid)
	case !slices.Contains(store.TokenRoles(), role):
		return "", fmt.Errorf("%w: unknown role %q; use viewer, operator or admin", holdfast.ErrInvalid, role)
	}
	if err := holdfast.CheckDuration("the lifetime of the token", lifetime); err != nil {
		return "", err
	}
	random := make([]byte, 32)
	if _, err := rand.Read(random); err != nil {
		return "", fmt.Errorf("create token: %w", err)
	}
	secret = secretPrefix + base64.RawURLEncoding.EncodeToString(random)
	_, err = b.Store.CreateToken(ctx, by, store.NewToken{Name: name, Role: role, Hash: HashSecret(secret), Lifetime: lifetime})
	if err != nil {
		return "", err
	}
	return secret, nil
}

// HashSecret returns the hash of the secret of a token. A fast hash is enough, because a secret has 256 random bits.
func HashSecret(secret string) string {
	sum := sha256.Sum256([]byte(secret))
	return hex.EncodeToString(sum[:])
}
