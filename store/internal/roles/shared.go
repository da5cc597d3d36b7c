package roles

import (
	"github.com/holdfastq/holdfast/store/internal/flow"
	"github.com/holdfastq/holdfast/store/internal/transact"
)

// Shared implements the roles that are the same for every adapter, whose Store embeds it. To add a role, add it here.
type Shared struct {
	tickets
	duties
	patrol
	inspector
	audit
	verification
	operations
	plans
	effects
	settings
	keptKeys
}

// NewShared returns the roles over the statements of an adapter, which add the tasks that they block to ended.
func NewShared(t transact.Transactions, ended *flow.Ended) Shared {
	return Shared{
		tickets{t, ended}, duties{t}, patrol{t}, inspector{t}, audit{t}, verification{t},
		operations{t}, plans{t}, effects{t}, settings{t}, keptKeys{t},
	}
}
