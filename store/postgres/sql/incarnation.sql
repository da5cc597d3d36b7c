select value from holdfast.meta where key = 'incarnation'
