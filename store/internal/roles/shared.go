package roles

// Shared implements the roles that are the same for every adapter, whose Store embeds it. To add a role, add it here.
type Shared struct {
	tickets
	duties
	patrol
	inspector
	deaths
	notices
	audit
	verification
	tokens
	answers
	operations
	plans
	data
	settings
	figures
}

// NewShared returns the roles over the statements of an adapter, which add the tasks that they block to ended.
func NewShared(t Transactions, ended *Ended) Shared {
	return Shared{
		tickets{t, ended}, duties{t}, patrol{t}, inspector{t}, deaths{t}, notices{t}, audit{t}, verification{t},
		tokens{t}, answers{t}, operations{t}, plans{t}, data{t}, settings{t}, figures{t},
	}
}
