package app

import (
	"context"
	"fmt"
	"strings"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/store"
)

// namedGroups is the maximum number of groups in the error of an ambiguous fingerprint.
const namedGroups = 5

// Fingerprint returns the fingerprint of the known group that begins with the given digits. If there is no such group, it
// returns the digits. It returns an ErrInvalid if there are several.
func (b *Backend) Fingerprint(ctx context.Context, digits string) (string, error) {
	if holdfast.IsFingerprint(digits) {
		return digits, nil
	}
	found, err := b.Store.Fingerprints(ctx, digits, namedGroups+1)
	switch {
	case err != nil:
		return "", err
	case len(found) == 0:
		return digits, nil
	case len(found) == 1:
		return found[0], nil
	}
	more := ""
	if len(found) > namedGroups {
		found, more = found[:namedGroups], " and more"
	}
	return "", fmt.Errorf("%w: several groups begin with %s: %s%s; add digits", holdfast.ErrInvalid, digits, strings.Join(found, ", "), more)
}

// WholeGroup returns a filter with the whole fingerprint instead of its first digits; see Fingerprint.
func (b *Backend) WholeGroup(ctx context.Context, f store.Filter) (_ store.Filter, err error) {
	if f.Fingerprint != "" {
		f.Fingerprint, err = b.Fingerprint(ctx, f.Fingerprint)
	}
	return f, err
}
